"""Architectures of transformers, as its own configurations build them, small and with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from case import Arrays, Case, Drawn, ids, mask, normal, uniform
from lively import seeded, settled
from torchvision_on_cpu import make_importable

__all__ = ["HUB_CASES"]

WORDS = 99
SEQUENCE = {"sequence": (4, 24)}
# Sizes by the names that most configurations use.
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
SEQ2SEQ = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}
# Pictures of 32 x 32, in patches of 8 x 8.
PICTURE = {"image_size": 32, "patch_size": 8, "num_channels": 3}
PIXELS = {"pixel_values": normal("batch 3 32 32")}
TOKENS = {"input_ids": ids(WORDS), "attention_mask": mask()}
CAUSAL = {**SMALL, "use_cache": False}
# What counts positions in Python is converted for one length alone, whoever exports it.
LENGTH = "batch 24"
OF_ONE_LENGTH = {"inputs": {"input_ids": ids(WORDS, LENGTH), "attention_mask": mask(LENGTH)}, "sizes": {}}
LOOPS = "no exporter of PyTorch writes it for more than one length, as it loops over positions: it has one length here"
UNEXPECTED_MASK = (
    "no exporter of PyTorch writes it: while it is traced, transformers makes a mask that it leaves out otherwise, and "
    "that this architecture's attention does not fit"
)


def hub(name: str, *, part: str = "", **config: Any) -> Callable[[], Any]:
    """Return what builds the model of a class of transformers, or one of its parts, from its configuration."""

    def build() -> Any:
        make_importable()
        import transformers

        model_class = getattr(transformers, name)
        module = model_class(model_class.config_class(**config))
        return module.get_submodule(part) if part else module

    return seeded(build)


def pad(arrays: Arrays) -> Arrays:
    """Put the id 0 where the mask is 0."""
    return {**arrays, "input_ids": arrays["input_ids"] * arrays["attention_mask"]}


def text(name: str, family: str, model: str, outputs: tuple[str, ...], config: Mapping[str, Any], **rest: Any) -> Case:
    """Return a case whose inputs are ids and a mask."""
    rest = {"inputs": TOKENS, "sizes": SEQUENCE, "joint": pad, **rest}
    return Case(name=name, family=family, build=hub(model, **config), outputs=outputs, **rest)


def picture(
    name: str, family: str, model: str, outputs: tuple[str, ...], config: Mapping[str, Any], **rest: Any
) -> Case:
    """Return a case whose input is a picture."""
    rest = {"inputs": PIXELS, **rest}
    return Case(name=name, family=family, build=hub(model, **config), outputs=outputs, **rest)


def settled_picture(shape: tuple[int, ...], case: Case) -> Case:
    """Return the case with normalisations that have the statistics of pictures of this shape."""
    return replace(case, build=settled(case.build, shape))


LAST = ("last_hidden_state",)
LOGITS = ("logits",)

HUB_CASES = [
    text("bert", "text encoder", "BertForSequenceClassification", LOGITS, SMALL),
    text("roberta", "text encoder", "RobertaForTokenClassification", LOGITS, SMALL),
    text(
        "deberta-v2",
        "text encoder",
        "DebertaV2ForSequenceClassification",
        LOGITS,
        {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    ),
    text("albert", "text encoder", "AlbertForMaskedLM", LOGITS, {**SMALL, "embedding_size": 16}),
    text(
        "funnel",
        "text encoder",
        "FunnelModel",
        LAST,
        {"vocab_size": WORDS, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
        **OF_ONE_LENGTH,
        note=LOOPS,
    ),
    text("fnet", "text encoder", "FNetModel", LAST, SMALL, inputs={"input_ids": ids(WORDS)}, joint=None),
    text("squeezebert", "text encoder", "SqueezeBertModel", LAST, {**SMALL, "embedding_size": 32}),
    text("convbert", "text encoder", "ConvBertModel", LAST, {**SMALL, "embedding_size": 16}),
    text(
        "mobilebert",
        "text encoder",
        "MobileBertModel",
        LAST,
        {**SMALL, "embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16},
    ),
    text(
        "xlnet",
        "text encoder",
        "XLNetModel",
        LAST,
        {"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
    ),
    text(
        "canine",
        "text encoder",
        "CanineModel",
        LAST,
        {
            **SMALL,
            "num_hash_buckets": 192,
            "local_transformer_stride": 8,
            "max_position_embeddings": 192,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        inputs={"input_ids": ids(WORDS, "batch 160"), "attention_mask": mask("batch 160")},
        sizes={},
        note=LOOPS,
    ),
    text(
        "longformer",
        "text encoder",
        "LongformerModel",
        LAST,
        {**SMALL, "attention_window": 4},
        note="no exporter of PyTorch writes it right: it branches on whether a mask has a 2, and what the TorchScript "
        "exporter makes of it is off by 3.4",
        is_unwritable=True,
    ),
    text(
        "nystromformer",
        "text encoder",
        "NystromformerModel",
        LAST,
        {**SMALL, "num_landmarks": 4, "segment_means_seq_len": 16, "conv_kernel_size": 5},
        inputs={"input_ids": ids(WORDS, "batch 16")},
        joint=None,
        sizes={},
        note=UNEXPECTED_MASK,
        is_unwritable=True,
    ),
    text(
        "layoutlm",
        "documents",
        "LayoutLMForTokenClassification",
        LOGITS,
        {**SMALL, "max_2d_position_embeddings": 64},
        inputs={
            "input_ids": ids(WORDS),
            "bbox": Drawn(
                "batch sequence 4",
                lambda random, size: np.sort(random.integers(0, 64, (*size[:2], 2, 2)), axis=2).reshape(size),
            ),
            "attention_mask": mask(),
        },
    ),
    text(
        "t5-encoder",
        "encoder-decoder",
        "T5EncoderModel",
        LAST,
        {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    ),
    Case(
        name="t5",
        family="encoder-decoder",
        outputs=LOGITS,
        sizes={**SEQUENCE, "target": (2, 12)},
        joint=pad,
        build=hub(
            "T5ForConditionalGeneration",
            vocab_size=WORDS,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=1,
            num_heads=4,
            use_cache=False,
            feed_forward_proj="gated-gelu",
        ),
        inputs={**TOKENS, "decoder_input_ids": ids(WORDS, "batch target")},
    ),
    Case(
        name="bart",
        family="encoder-decoder",
        outputs=LOGITS,
        sizes={**SEQUENCE, "target": (2, 12)},
        joint=pad,
        build=hub("BartForConditionalGeneration", **SEQ2SEQ, use_cache=False),
        inputs={**TOKENS, "decoder_input_ids": ids(WORDS, "batch target")},
    ),
    text(
        "gpt2",
        "decoder",
        "GPT2LMHeadModel",
        LOGITS,
        {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "use_cache": False},
    ),
    text("llama", "decoder", "LlamaForCausalLM", LOGITS, {**CAUSAL, "num_key_value_heads": 2}),
    text(
        "mixtral",
        "mixture of experts",
        "MixtralForCausalLM",
        LOGITS,
        {**CAUSAL, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    text(
        "bloom",
        "decoder",
        "BloomForCausalLM",
        LOGITS,
        {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False},
    ),
    text("gpt-neox", "decoder", "GPTNeoXForCausalLM", LOGITS, CAUSAL),
    text(
        "mamba",
        "state space",
        "MambaForCausalLM",
        LOGITS,
        {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_cache": False},
        inputs={"input_ids": ids(WORDS, LENGTH)},
        sizes={},
        joint=None,
        note=LOOPS,
    ),
    text(
        "mamba2",
        "state space",
        "Mamba2ForCausalLM",
        LOGITS,
        {
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "use_cache": False,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 1,
            "chunk_size": 8,
        },
        inputs={"input_ids": ids(WORDS, LENGTH)},
        sizes={},
        joint=None,
        note=LOOPS,
    ),
    text(
        "rwkv",
        "state space",
        "RwkvForCausalLM",
        LOGITS,
        {
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "attention_hidden_size": 32,
            "use_cache": False,
        },
        inputs={"input_ids": ids(WORDS, LENGTH)},
        sizes={},
        joint=None,
        note=LOOPS,
    ),
    text(
        "recurrent-gemma",
        "state space",
        "RecurrentGemmaForCausalLM",
        LOGITS,
        {
            **CAUSAL,
            "num_hidden_layers": 3,
            "lru_width": 32,
            "attention_window_size": 8,
            "head_dim": 8,
            "num_key_value_heads": 1,
        },
        **OF_ONE_LENGTH,
        note=LOOPS,
    ),
    Case(
        name="whisper-encoder",
        family="speech",
        outputs=LAST,
        inputs={"input_features": normal("batch 8 64")},
        build=hub(
            "WhisperModel",
            part="encoder",
            **SEQ2SEQ,
            num_mel_bins=8,
            max_source_positions=32,
            max_target_positions=32,
            pad_token_id=0,
        ),
    ),
    Case(
        name="whisper",
        family="speech",
        outputs=LOGITS,
        sizes={"target": (2, 12)},
        inputs={"input_features": normal("batch 8 64"), "decoder_input_ids": ids(WORDS, "batch target")},
        build=hub(
            "WhisperForConditionalGeneration",
            **SEQ2SEQ,
            num_mel_bins=8,
            max_source_positions=32,
            max_target_positions=32,
            pad_token_id=0,
            use_cache=False,
        ),
    ),
    Case(
        name="wav2vec2",
        family="speech",
        outputs=LOGITS,
        sizes={"samples": (400, 800)},
        inputs={"input_values": normal("batch samples")},
        build=hub(
            "Wav2Vec2ForCTC",
            **SMALL,
            conv_dim=(16, 16),
            conv_stride=(5, 4),
            conv_kernel=(10, 8),
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
        ),
    ),
    Case(
        name="conformer",
        family="speech",
        outputs=LOGITS,
        sizes={"samples": (400, 800)},
        inputs={"input_values": normal("batch samples")},
        build=hub(
            "Wav2Vec2ConformerForCTC",
            **SMALL,
            conv_dim=(16, 16),
            conv_stride=(5, 4),
            conv_kernel=(10, 8),
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
            conv_depthwise_kernel_size=7,
            position_embeddings_type="rotary",
        ),
    ),
    Case(
        name="audio-spectrogram",
        family="speech",
        outputs=LOGITS,
        inputs={"input_values": normal("batch 48 16")},
        build=hub(
            "ASTForAudioClassification",
            **SMALL,
            num_mel_bins=16,
            max_length=48,
            patch_size=8,
            frequency_stride=6,
            time_stride=6,
        ),
    ),
    picture("vit", "picture classifier", "ViTForImageClassification", LOGITS, {**SMALL, **PICTURE}),
    picture(
        "swin",
        "picture classifier",
        "SwinForImageClassification",
        LOGITS,
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    picture(
        "convnext",
        "picture classifier",
        "ConvNextForImageClassification",
        LOGITS,
        {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
    ),
    settled_picture(
        (16, 3, 64, 64),
        picture(
            "mobilevit",
            "picture classifier",
            "MobileViTForImageClassification",
            LOGITS,
            {
                "image_size": 64,
                "hidden_sizes": [16, 24, 32],
                "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
                "num_attention_heads": 4,
            },
            inputs={"pixel_values": normal("batch 3 64 64")},
        ),
    ),
    picture(
        "poolformer",
        "picture classifier",
        "PoolFormerForImageClassification",
        LOGITS,
        {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
    ),
    picture(
        "levit",
        "picture classifier",
        "LevitForImageClassification",
        LOGITS,
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        inputs={"pixel_values": normal("batch 3 64 64")},
    ),
    picture(
        "focalnet",
        "picture classifier",
        "FocalNetForImageClassification",
        LOGITS,
        {"image_size": 32, "embed_dim": 8, "depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3]},
    ),
    picture(
        "hiera",
        "picture classifier",
        "HieraModel",
        LAST,
        {
            "image_size": [32, 32],
            "embed_dim": 8,
            "num_heads": [1, 2, 4],
            "depths": [1, 1, 1],
            "num_query_pool": 2,
            "masked_unit_size": [4, 4],
        },
    ),
    picture(
        "segformer",
        "segmentation",
        "SegformerForSemanticSegmentation",
        LOGITS,
        {
            "hidden_sizes": [8, 16, 16, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 16,
        },
        inputs={"pixel_values": normal("batch 3 64 64")},
    ),
    picture(
        "beit-segmentation",
        "segmentation",
        "BeitForSemanticSegmentation",
        LOGITS,
        {
            **SMALL,
            **PICTURE,
            "num_hidden_layers": 4,
            "out_indices": [1, 2, 3, 4],
            "use_relative_position_bias": True,
            "use_auxiliary_head": False,
            "num_labels": 5,
        },
    ),
    picture(
        "dpt",
        "depth",
        "DPTForDepthEstimation",
        ("predicted_depth",),
        {
            **SMALL,
            **PICTURE,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 8,
            "reassemble_factors": [4, 2, 1, 0.5],
        },
    ),
    picture(
        "yolos",
        "detection",
        "YolosForObjectDetection",
        ("logits", "pred_boxes"),
        {**SMALL, **PICTURE, "image_size": [32, 32], "num_detection_tokens": 6},
    ),
    Case(
        name="sam",
        family="segmentation",
        outputs=("iou_scores", "pred_masks"),
        inputs={
            "pixel_values": normal("batch 3 64 64"),
            "input_points": Drawn("batch 1 2 2", lambda random, size: random.uniform(0, 64, size).astype(np.float32)),
        },
        build=seeded(lambda: _sam()),  # noqa: PLW0108 - it is defined below
    ),
    Case(
        name="gpt2-cache",
        family="decoder",
        build=seeded(lambda: _with_cache()),  # noqa: PLW0108 - it is defined below
        inputs={
            "input_ids": ids(WORDS, "batch new"),
            "attention_mask": Drawn("batch total", lambda random, size: np.ones(size, np.int64)),
            **{f"past_{index}": normal("batch 4 past 8") for index in range(4)},
        },
        sizes={"new": (1, 4), "past": (2, 12)},
    ),
    picture(
        "detr",
        "detection",
        "DetrForObjectDetection",
        ("logits", "pred_boxes"),
        {
            **{k: v for k, v in SEQ2SEQ.items() if k not in ("vocab_size", "max_position_embeddings")},
            "num_queries": 5,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 16],
                "depths": [1, 1],
                "layer_type": "basic",
                "out_features": ["stage2"],
            },
        },
        inputs={"pixel_values": normal("batch 3 64 64")},
    ),
    picture(
        "rt-detr",
        "detection",
        "RTDetrForObjectDetection",
        ("logits", "pred_boxes"),
        {
            "d_model": 32,
            "encoder_hidden_dim": 32,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "num_queries": 6,
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
            "encoder_attention_heads": 4,
            "num_labels": 3,
            "encoder_in_channels": [8, 16, 32],
            "feat_strides": [8, 16, 32],
            "decoder_in_channels": [32, 32, 32],
            "num_denoising": 0,
            "decoder_n_points": 2,
            "backbone_config": {
                "model_type": "rt_detr_resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 8, 16, 32],
                "depths": [1, 1, 1, 1],
                "layer_type": "basic",
                "out_features": ["stage2", "stage3", "stage4"],
            },
        },
        inputs={"pixel_values": normal("batch 3 64 64")},
    ),
    Case(
        name="patchtst",
        family="time series",
        outputs=("prediction_outputs",),
        inputs={"past_values": normal("batch 32 3")},
        build=hub(
            "PatchTSTForPrediction",
            num_input_channels=3,
            context_length=32,
            patch_length=8,
            patch_stride=4,
            prediction_length=6,
            d_model=16,
            num_attention_heads=2,
            ffn_dim=32,
            num_hidden_layers=2,
        ),
    ),
    Case(
        name="patchtsmixer",
        family="time series",
        outputs=("prediction_outputs",),
        inputs={"past_values": normal("batch 32 3")},
        build=hub(
            "PatchTSMixerForPrediction",
            num_input_channels=3,
            context_length=32,
            patch_length=8,
            patch_stride=8,
            prediction_length=6,
            d_model=16,
            num_layers=2,
        ),
    ),
    Case(
        name="informer",
        family="time series",
        outputs=LAST,
        build=seeded(lambda: _forecaster("Informer")),
        inputs={
            "past_values": normal("batch 23"),
            "past_time_features": normal("batch 23 2"),
            "past_observed_mask": Drawn("batch 23", lambda random, size: np.ones(size, np.float32)),
            "future_values": normal("batch 6"),
            "future_time_features": normal("batch 6 2"),
        },
    ),
    Case(
        name="autoformer",
        family="time series",
        outputs=LAST,
        note=UNEXPECTED_MASK,
        is_unwritable=True,
        build=seeded(lambda: _forecaster("Autoformer")),
        inputs={
            "past_values": normal("batch 23"),
            "past_time_features": normal("batch 23 2"),
            "past_observed_mask": Drawn("batch 23", lambda random, size: np.ones(size, np.float32)),
            "future_values": normal("batch 6"),
            "future_time_features": normal("batch 6 2"),
        },
    ),
    picture(
        "timesformer",
        "video",
        "TimesformerForVideoClassification",
        LOGITS,
        {**SMALL, **PICTURE, "num_frames": 2},
        inputs={"pixel_values": normal("batch 2 3 32 32")},
    ),
    picture(
        "videomae",
        "video",
        "VideoMAEForVideoClassification",
        LOGITS,
        {**SMALL, **PICTURE, "num_frames": 4, "tubelet_size": 2},
        inputs={"pixel_values": normal("batch 4 3 32 32")},
    ),
    picture(
        "swin2sr",
        "super-resolution",
        "Swin2SRForImageSuperResolution",
        ("reconstruction",),
        {"image_size": 16, "patch_size": 1, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        inputs={"pixel_values": uniform("batch 3 16 16")},
    ),
    picture(
        "vitpose",
        "keypoints",
        "VitPoseForPoseEstimation",
        ("heatmaps",),
        {
            "num_labels": 5,
            "backbone_config": {
                "model_type": "vitpose_backbone",
                "image_size": [32, 32],
                "patch_size": [8, 8],
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "part_features": 0,
                "out_features": ["stage2"],
            },
            "use_simple_decoder": True,
            "scale_factor": 2,
        },
    ),
    Case(
        name="decision-transformer",
        family="reinforcement learning",
        outputs=("action_preds",),
        build=hub(
            "DecisionTransformerModel", state_dim=5, act_dim=3, hidden_size=32, n_layer=2, n_head=4, max_ep_len=50
        ),
        inputs={
            "states": normal("batch sequence 5"),
            "actions": normal("batch sequence 3"),
            "rewards": normal("batch sequence 1"),
            "returns_to_go": normal("batch sequence 1"),
            "timesteps": ids(50),
            "attention_mask": mask(),
        },
        sizes={"sequence": (2, 12)},
    ),
    Case(
        name="encodec",
        family="speech",
        outputs=("audio_values",),
        inputs={"input_values": normal("batch 1 640")},
        build=hub(
            "EncodecModel",
            num_filters=4,
            hidden_size=8,
            codebook_dim=8,
            codebook_size=16,
            num_lstm_layers=1,
            upsampling_ratios=[4, 4],
            sampling_rate=160,
            target_bandwidths=[0.5],
            num_residual_layers=1,
        ),
    ),
    Case(
        name="perceiver",
        family="multimodal",
        outputs=LAST,
        inputs={"inputs": normal("batch places 16")},
        sizes={"places": (6, 20)},
        build=hub(
            "PerceiverModel",
            d_model=16,
            d_latents=32,
            num_latents=4,
            num_self_attends_per_block=2,
            num_self_attention_heads=4,
            num_cross_attention_heads=4,
        ),
    ),
    Case(
        name="clip",
        family="pictures and text",
        outputs=("logits_per_image", "text_embeds"),
        joint=pad,
        inputs={"input_ids": ids(WORDS), "pixel_values": normal("batch 3 32 32"), "attention_mask": mask()},
        sizes=SEQUENCE,
        build=hub(
            "CLIPModel", text_config={**SMALL, "eos_token_id": 2}, vision_config={**SMALL, **PICTURE}, projection_dim=16
        ),
    ),
]


def _sam() -> Any:
    make_importable()
    import transformers as t

    vision = t.SamVisionConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=64,
        patch_size=16,
        mlp_dim=64,
        output_channels=16,
        window_size=2,
        global_attn_indexes=[1],
        num_pos_feats=8,
    )
    prompt = t.SamPromptEncoderConfig(hidden_size=16, image_size=64, patch_size=16, mask_input_channels=8)
    decoder = t.SamMaskDecoderConfig(
        hidden_size=16, mlp_dim=32, num_hidden_layers=1, num_attention_heads=4, iou_head_hidden_dim=16
    )
    return t.SamModel(
        t.SamConfig(
            vision_config=vision.to_dict(),
            prompt_encoder_config=prompt.to_dict(),
            mask_decoder_config=decoder.to_dict(),
        )
    )


def _forecaster(kind: str) -> Any:
    make_importable()
    import transformers

    # Informer's sparse attention draws keys at random, in evaluation mode too: no two answers of it are the same.
    options = {"attention_type": "full"} if kind == "Informer" else {}
    config = getattr(transformers, f"{kind}Config")(
        prediction_length=6,
        context_length=16,
        lags_sequence=[1, 2, 3, 7],
        num_time_features=2,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        use_cache=False,
        **options,
    )
    return getattr(transformers, f"{kind}Model")(config)


def _with_cache() -> Any:
    make_importable()
    import torch
    import transformers

    class Decoder(torch.nn.Module):
        """GPT-2 whose cache goes in and comes out as tensors, as servers hold it."""

        def __init__(self) -> None:
            super().__init__()
            config = transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64)
            self.model = transformers.GPT2LMHeadModel(config)

        def forward(  # noqa: PLR0913, PLR0917 - one argument an input
            self, input_ids: Any, attention_mask: Any, past_0: Any, past_1: Any, past_2: Any, past_3: Any
        ) -> Any:
            cache = transformers.DynamicCache([(past_0, past_1), (past_2, past_3)])
            made = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache)
            keys = [tensor for layer in made.past_key_values.layers for tensor in (layer.keys, layer.values)]
            return {"logits": made.logits, **{f"present_{index}": tensor for index, tensor in enumerate(keys)}}

    return Decoder()
