"""Architectures in plain PyTorch, as services write them: recommenders, tables, graphs, signals, detection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case, Drawn, flags, ids, normal, uniform
from lively import seeded

__all__ = ["PLAIN_CASES"]


def plain(make: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Return what builds a module: `make` is given torch and torch.nn, which are imported when it is called."""

    def build() -> Any:
        import torch

        return make(torch, torch.nn)

    return seeded(build)


def module(nn: Any, forward: Callable[..., Any], **parts: Any) -> Any:
    """Return a module of these parts with this `forward(self, ...)`."""
    made = type("Zoo", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        if isinstance(part, nn.Module | nn.Parameter):
            setattr(made, name, part)
        else:
            made.register_buffer(name, part)
    return made


def _lstm_tagger(torch: Any, nn: Any) -> Any:
    def forward(self: Any, tokens: Any) -> Any:
        return {"tags": self.out(self.lstm(self.embed(tokens))[0])}

    return module(
        nn,
        forward,
        embed=nn.Embedding(50, 16),
        out=nn.Linear(32, 5),
        lstm=nn.LSTM(16, 16, num_layers=2, bidirectional=True, batch_first=True),
    )


def _gru_lengths(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any, lengths: Any) -> Any:
        answered = self.gru(x)[0]
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, answered.shape[2])
        return {"score": torch.sigmoid(self.out(answered.gather(1, last).squeeze(1)))}

    return module(nn, forward, gru=nn.GRU(6, 16, batch_first=True), out=nn.Linear(16, 1))


def _rnn_cell_loop(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        state = torch.zeros(x.shape[0], 16)
        for step in range(8):
            state = self.cell(x[:, step], state)
        return {"logits": self.out(state)}

    return module(nn, forward, cell=nn.RNNCell(5, 16), out=nn.Linear(16, 4))


def _dlrm(torch: Any, nn: Any) -> Any:
    def forward(self: Any, dense: Any, sparse: Any) -> Any:
        parts = [self.bottom(dense), *(table(sparse[:, place]) for place, table in enumerate(self.tables))]
        stacked = torch.stack(parts, 1)
        crossed = torch.bmm(stacked, stacked.transpose(1, 2))
        low = crossed[:, self.rows, self.columns]
        return {"click": torch.sigmoid(self.top(torch.cat([parts[0], low], 1))).squeeze(1)}

    rows, columns = torch.tril_indices(5, 5, -1)
    return module(
        nn,
        forward,
        bottom=nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()),
        tables=nn.ModuleList(nn.Embedding(40, 8) for _ in range(4)),
        rows=rows,
        columns=columns,
        top=nn.Sequential(nn.Linear(18, 16), nn.ReLU(), nn.Linear(16, 1)),
    )


def _deepfm(torch: Any, nn: Any) -> Any:
    def forward(self: Any, fields: Any) -> Any:
        embedded = self.embed(fields + self.offsets)
        pairs = 0.5 * (embedded.sum(1).pow(2) - embedded.pow(2).sum(1)).sum(1)
        return {
            "score": torch.sigmoid(
                self.first(fields + self.offsets).sum((1, 2)) + pairs + self.deep(embedded.flatten(1))[:, 0]
            )
        }

    return module(
        nn,
        forward,
        embed=nn.Embedding(60, 6),
        first=nn.Embedding(60, 1),
        offsets=torch.arange(0, 60, 15),
        deep=nn.Sequential(nn.Linear(24, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)),
    )


def _two_tower(torch: Any, nn: Any) -> Any:
    def forward(self: Any, user: Any, item: Any, history: Any) -> Any:
        seen = (history > 0).unsqueeze(-1)
        mean = (self.items(history) * seen).sum(1) / seen.sum(1).clamp(min=1)
        left = nn.functional.normalize(self.left(torch.cat([self.users(user), mean], 1)), dim=1)
        right = nn.functional.normalize(self.right(self.items(item)), dim=1)
        return {"similarity": (left * right).sum(1), "user_vector": left}

    return module(
        nn, forward, users=nn.Embedding(30, 8), items=nn.Embedding(50, 8), left=nn.Linear(16, 8), right=nn.Linear(8, 8)
    )


def _sasrec(torch: Any, nn: Any) -> Any:
    def forward(self: Any, history: Any) -> Any:
        size = history.shape[1]
        x = self.items(history) + self.places(torch.arange(size))
        later = torch.triu(torch.ones(size, size, dtype=torch.bool), 1)
        x = self.layer(x, src_mask=later)
        best = torch.topk(x[:, -1] @ self.items.weight.T, 5)
        return {"scores": best.values, "items": best.indices}

    return module(
        nn,
        forward,
        items=nn.Embedding(60, 16),
        places=nn.Embedding(32, 16),
        layer=nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True),
    )


def _tabular_transformer(torch: Any, nn: Any) -> Any:
    def forward(self: Any, numbers: Any, kinds: Any) -> Any:
        missing = torch.isnan(numbers)
        known = torch.where(missing, torch.zeros_like(numbers), numbers)
        columns = torch.cat([known.unsqueeze(2) * self.weight + self.bias, self.kinds(kinds + self.offsets)], 1)
        return {"logits": self.head(self.layer(columns).mean(1)), "missing": missing.sum(1)}

    return module(
        nn,
        forward,
        weight=nn.Parameter(torch.randn(5, 16)),
        bias=nn.Parameter(torch.randn(5, 16)),
        kinds=nn.Embedding(30, 16),
        offsets=torch.tensor([0, 10, 20]),
        head=nn.Linear(16, 3),
        layer=nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True),
    )


def _tabnet(torch: Any, nn: Any) -> Any:
    def sparsemax(z: Any) -> Any:
        ordered = torch.sort(z, 1, descending=True).values
        ranks = torch.arange(1, z.shape[1] + 1, dtype=z.dtype)
        support = 1 + ranks * ordered > ordered.cumsum(1)
        count = support.sum(1, keepdim=True)
        limit = (ordered.cumsum(1).gather(1, count - 1) - 1) / count
        return torch.clamp(z - limit, min=0)

    def forward(self: Any, x: Any) -> Any:
        x = self.norm(x)
        prior, total = torch.ones_like(x), torch.zeros(x.shape[0], 8)
        for attend, act in zip(self.attend, self.act, strict=True):
            focus = sparsemax(attend(total) * prior)
            prior = prior * (1.3 - focus)
            left, right = act(focus * x).chunk(2, 1)
            total = total + left * torch.sigmoid(right)
        return {"logits": self.out(total)}

    return module(
        nn,
        forward,
        norm=nn.BatchNorm1d(10),
        attend=nn.ModuleList(nn.Linear(8, 10) for _ in range(3)),
        act=nn.ModuleList(nn.Linear(10, 16) for _ in range(3)),
        out=nn.Linear(8, 2),
    )


def _bucketed(torch: Any, nn: Any) -> Any:
    def forward(self: Any, age: Any, income: Any, member: Any) -> Any:
        bucket = torch.bucketize(age, self.edges)
        x = torch.cat([self.ages(bucket), torch.log1p(income).unsqueeze(1), member.unsqueeze(1).float()], 1)
        return {"risk": torch.sigmoid(self.out(x)).squeeze(1), "bucket": bucket}

    return module(
        nn, forward, edges=torch.tensor([18.0, 30.0, 45.0, 60.0]), ages=nn.Embedding(5, 4), out=nn.Linear(6, 1)
    )


def _gcn(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any, edges: Any) -> Any:
        source, target = edges[:, 0], edges[:, 1]
        degree = torch.ones(x.shape[0]).index_add(0, target, torch.ones(edges.shape[0]))
        for layer in self.layers:
            sent = layer(x) / degree.sqrt().unsqueeze(1)
            x = torch.relu(sent.index_add(0, target, sent[source]) / degree.sqrt().unsqueeze(1))
        return {"nodes": self.out(x)}

    return module(nn, forward, layers=nn.ModuleList([nn.Linear(6, 16), nn.Linear(16, 16)]), out=nn.Linear(16, 3))


def _gat(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any, adjacency: Any) -> Any:
        h = self.project(x)
        score = nn.functional.leaky_relu(self.left(h) + self.right(h).transpose(1, 2), 0.2)
        weight = torch.softmax(score.masked_fill(~adjacency, -1e4), 2)
        return {"graph": self.out(nn.functional.elu(weight @ h).amax(1))}

    return module(
        nn, forward, project=nn.Linear(5, 16), left=nn.Linear(16, 1), right=nn.Linear(16, 1), out=nn.Linear(16, 2)
    )


def _message_passing(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any, edges: Any) -> Any:
        sent = self.message(torch.cat([x[edges[:, 0]], x[edges[:, 1]]], 1))
        index = edges[:, 1:].expand(-1, sent.shape[1])
        largest = torch.full((x.shape[0], sent.shape[1]), -10.0).scatter_reduce(0, index, sent, "amax")
        return {"nodes": self.update(largest, x)}

    return module(nn, forward, message=nn.Linear(12, 8), update=nn.GRUCell(8, 6))


def _pointnet(torch: Any, nn: Any) -> Any:
    def forward(self: Any, points: Any) -> Any:
        turned = points @ self.align(points.transpose(1, 2)).amax(2).view(-1, 3, 3)
        return {"logits": self.head(self.features(turned.transpose(1, 2)).amax(2))}

    return module(
        nn,
        forward,
        align=nn.Sequential(nn.Conv1d(3, 9, 1), nn.Tanh()),
        head=nn.Linear(32, 4),
        features=nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1)),
    )


def _diffusion_unet(torch: Any, nn: Any) -> Any:
    def forward(self: Any, sample: Any, timestep: Any) -> Any:
        angles = timestep.float().unsqueeze(1) * self.frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        first = nn.functional.silu(self.norm1(self.into(sample)) + time)
        low = self.down(first)
        size = low.shape
        flat = low.flatten(2).transpose(1, 2)
        low = low + self.attend(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(size)
        high = nn.functional.interpolate(nn.functional.silu(self.norm2(low)), scale_factor=2.0, mode="nearest")
        return {"noise": self.out(torch.cat([high, first], 1))}

    return module(
        nn,
        forward,
        frequencies=torch.exp(-torch.arange(8) * 1.1),
        time=nn.Sequential(nn.Linear(16, 16), nn.SiLU()),
        into=nn.Conv2d(3, 16, 3, padding=1),
        norm1=nn.GroupNorm(4, 16),
        norm2=nn.GroupNorm(4, 16),
        down=nn.Conv2d(16, 16, 3, 2, 1),
        attend=nn.MultiheadAttention(16, 2, batch_first=True),
        out=nn.Conv2d(32, 3, 3, padding=1),
    )


def _detector(torch: Any, nn: Any) -> Any:
    from torchvision_on_cpu import make_importable

    make_importable()
    import torchvision  # noqa: F401 - it defines the operator

    def forward(self: Any, image: Any) -> Any:
        found = self.body(image)[0].flatten(1).T
        corner = self.grid + 4 * torch.tanh(found[:, :2])
        size = 4 + 8 * torch.sigmoid(found[:, 2:4])
        boxes, scores = torch.cat([corner, corner + size], 1), torch.sigmoid(found[:, 4])
        kept = torch.ops.torchvision.nms(boxes, scores, 0.4)
        return {"boxes": boxes[kept][None], "scores": scores[kept][None]}

    places = torch.arange(0, 32, 4).float()
    grid = torch.stack(torch.meshgrid(places, places, indexing="xy"), 2).reshape(-1, 2)
    return module(
        nn,
        forward,
        grid=grid,
        body=nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.LeakyReLU(0.1),
            nn.Conv2d(8, 8, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(8, 5, 1),
        ),
    )


def _super_resolution(torch: Any, nn: Any) -> Any:
    def forward(self: Any, picture: Any) -> Any:
        return {"larger": torch.clamp(self.body(picture.float() / 255), 0, 1)}

    return module(
        nn,
        forward,
        body=nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.PReLU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2)
        ),
    )


def _style(torch: Any, nn: Any) -> Any:
    def forward(self: Any, picture: Any) -> Any:
        low = torch.relu(self.norm(self.into(self.pad(picture))))
        return {"styled": torch.tanh(self.out(nn.functional.interpolate(low, scale_factor=2.0, mode="bilinear")))}

    return module(
        nn,
        forward,
        pad=nn.ReflectionPad2d(1),
        into=nn.Conv2d(3, 8, 3, 2),
        norm=nn.InstanceNorm2d(8, affine=True),
        out=nn.Conv2d(8, 3, 3, padding=1),
    )


def _generator(torch: Any, nn: Any) -> Any:
    def forward(self: Any, noise: Any, kind: Any) -> Any:
        return {"picture": self.body((noise * self.kinds(kind))[:, :, None, None])}

    return module(
        nn,
        forward,
        kinds=nn.Embedding(6, 16),
        body=nn.Sequential(
            nn.ConvTranspose2d(16, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()
        ),
    )


def _spatial_transformer(torch: Any, nn: Any) -> Any:
    def forward(self: Any, picture: Any) -> Any:
        theta = self.base + 0.2 * torch.tanh(self.where(picture.flatten(1))).view(-1, 2, 3)
        grid = nn.functional.affine_grid(theta, list(picture.shape), align_corners=False)
        return {"logits": self.out(nn.functional.grid_sample(picture, grid, align_corners=False).mean(3).flatten(1))}

    return module(nn, forward, base=torch.eye(2, 3), where=nn.Linear(192, 6), out=nn.Linear(24, 3))


def _wavenet(torch: Any, nn: Any) -> Any:
    def forward(self: Any, wave: Any) -> Any:
        x = self.into(wave.unsqueeze(1))
        kept = 0
        for place, layer in enumerate(self.layers):
            gate, value = layer(nn.functional.pad(x, (2 * 2**place, 0))).chunk(2, 1)
            step = torch.sigmoid(gate) * torch.tanh(value)
            x, kept = x + step, kept + step
        return {"next": self.out(torch.relu(kept))[:, :, -1]}

    return module(
        nn,
        forward,
        into=nn.Conv1d(1, 8, 1),
        out=nn.Conv1d(8, 16, 1),
        layers=nn.ModuleList(nn.Conv1d(8, 16, 3, dilation=2**place) for place in range(3)),
    )


def _keyword_spotting(torch: Any, nn: Any) -> Any:
    def forward(self: Any, wave: Any) -> Any:
        frames = wave.unfold(1, 32, 16) * self.window
        power = (frames @ self.cosines) ** 2 + (frames @ self.sines) ** 2
        return {"logits": self.head(torch.log(power + 1e-3).unsqueeze(1)).mean((2, 3))}

    phase = 2 * np.pi * torch.outer(torch.arange(32), torch.arange(17)) / 32
    return module(
        nn,
        forward,
        window=torch.hann_window(32),
        cosines=phase.cos(),
        sines=phase.sin(),
        head=nn.Sequential(
            nn.Conv2d(1, 8, 3, groups=1), nn.Hardswish(), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1)
        ),
    )


def _crnn(torch: Any, nn: Any) -> Any:
    def forward(self: Any, picture: Any) -> Any:
        columns = self.body(picture).mean(2).transpose(1, 2)
        likely = torch.log_softmax(self.out(self.lstm(columns)[0]), 2)
        return {"likely": likely, "letters": likely.argmax(2)}

    return module(
        nn,
        forward,
        lstm=nn.LSTM(8, 8, bidirectional=True, batch_first=True),
        out=nn.Linear(16, 12),
        body=nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.AvgPool2d((2, 1)),
        ),
    )


def _viterbi(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        emitted = self.emit(x)
        score, back = emitted[:, 0], []
        for step in range(1, 6):
            best = (score.unsqueeze(2) + self.moves).max(1)
            score = best.values + emitted[:, step]
            back.append(best.indices)
        tag = score.argmax(1, keepdim=True)
        path = [tag]
        for indices in reversed(back):
            tag = indices.gather(1, tag)
            path.insert(0, tag)
        return {"score": score.amax(1), "path": torch.cat(path, 1)}

    return module(nn, forward, emit=nn.Linear(5, 4), moves=nn.Parameter(torch.randn(4, 4)))


def _flow(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        volume = torch.zeros(x.shape[0])
        for net in self.nets:
            left, right = x.chunk(2, 1)
            scale, shift = net(left).chunk(2, 1)
            scale = torch.tanh(scale)
            x = torch.cat([right * scale.exp() + shift, left], 1)
            volume = volume + scale.sum(1)
        return {"log_likelihood": -0.5 * (x**2).sum(1) - 3 * np.log(2 * np.pi) + volume}

    return module(
        nn,
        forward,
        nets=nn.ModuleList(nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 6)) for _ in range(3)),
    )


def _nbeats(torch: Any, nn: Any) -> Any:
    def forward(self: Any, series: Any) -> Any:
        level = series.abs().mean(1, keepdim=True) + 1
        rest, ahead = series / level, 0
        for block, trend in zip(self.blocks, (True, False), strict=True):
            theta = block(rest)
            basis = self.trend if trend else self.seasons
            rest, ahead = rest - theta[:, :3] @ basis[:, :12], ahead + theta[:, 3:] @ basis[:, 12:]
        return {"forecast": ahead * level}

    time = torch.arange(18) / 18
    return module(
        nn,
        forward,
        trend=torch.stack([time**0, time, time**2]),
        seasons=torch.stack([torch.cos(6.28 * time), torch.sin(6.28 * time), torch.cos(12.56 * time)]),
        blocks=nn.ModuleList(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6)) for _ in range(2)),
    )


def _temporal_fusion(torch: Any, nn: Any) -> Any:
    def forward(self: Any, past: Any, future: Any, kind: Any) -> Any:
        static = nn.functional.elu(self.kinds(kind))
        weights = torch.softmax(self.choose(past), 2)
        hidden = self.encode(past * weights, (static.unsqueeze(0), torch.zeros_like(static).unsqueeze(0)))
        decoded = self.decode(future, hidden[1])[0]
        joined = torch.cat([hidden[0], decoded], 1)
        seen = self.attend(decoded, joined, joined, need_weights=False)[0]
        gated = self.norm(decoded + nn.functional.glu(self.gate(seen), 2))
        return {"quantiles": torch.cumsum(nn.functional.softplus(self.out(gated)), 2)}

    return module(
        nn,
        forward,
        kinds=nn.Embedding(5, 16),
        choose=nn.Linear(4, 4),
        encode=nn.LSTM(4, 16, batch_first=True),
        decode=nn.LSTM(2, 16, batch_first=True),
        attend=nn.MultiheadAttention(16, 4, batch_first=True),
        gate=nn.Linear(16, 32),
        norm=nn.LayerNorm(16),
        out=nn.Linear(16, 3),
    )


def _capsules(torch: Any, nn: Any) -> Any:
    def squash(s: Any) -> Any:
        length = s.norm(dim=-1, keepdim=True)
        return s * length / (1 + length**2)

    def forward(self: Any, picture: Any) -> Any:
        primary = squash(self.conv(picture).view(picture.shape[0], -1, 4))
        votes = torch.einsum("bni,nkij->bnkj", primary, self.votes)
        logits = torch.zeros(votes.shape[:3])
        for _ in range(2):
            capsules = squash((torch.softmax(logits, 2).unsqueeze(3) * votes).sum(1))
            logits = logits + (votes * capsules.unsqueeze(1)).sum(3)
        return {"length": torch.linalg.vector_norm(capsules, dim=2)}

    return module(nn, forward, conv=nn.Conv2d(1, 8, 3, 2), votes=nn.Parameter(torch.randn(18, 3, 4, 6)))


def _mixture_of_experts(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        weight, chosen = torch.topk(torch.softmax(self.route(x), 1), 2)
        dense = torch.zeros(x.shape[0], 4).scatter(1, chosen, weight / weight.sum(1, keepdim=True))
        answers = torch.stack([expert(x) for expert in self.experts], 1)
        return {"y": (dense.unsqueeze(2) * answers).sum(1), "load": dense.sum(0)}

    return module(nn, forward, route=nn.Linear(8, 4), experts=nn.ModuleList(nn.Linear(8, 6) for _ in range(4)))


def _vector_quantised(torch: Any, nn: Any) -> Any:
    def forward(self: Any, picture: Any) -> Any:
        z = self.encode(picture).flatten(2).transpose(1, 2)
        codes = torch.cdist(z, self.codes.expand(z.shape[0], -1, -1)).argmin(2)
        return {"codes": codes, "decoded": self.decode(self.codes[codes].transpose(1, 2).unflatten(2, (4, 4)))}

    return module(
        nn,
        forward,
        encode=nn.Conv2d(1, 6, 4, 4),
        codes=nn.Parameter(torch.randn(16, 6)),
        decode=nn.ConvTranspose2d(6, 1, 4, 4),
    )


def _kolmogorov(torch: Any, nn: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        for weight in (self.first, self.second):
            basis = torch.exp(-((x.unsqueeze(2) - self.centres) ** 2))
            x = torch.einsum("big,igo->bo", basis, weight)
        return {"y": x}

    return module(
        nn,
        forward,
        centres=torch.linspace(-2, 2, 5),
        first=nn.Parameter(torch.randn(4, 5, 8)),
        second=nn.Parameter(torch.randn(8, 5, 2)),
    )


def _video(torch: Any, nn: Any) -> Any:
    def forward(self: Any, clip: Any) -> Any:
        return {"logits": self.head(self.body(clip).flatten(1))}

    return module(
        nn,
        forward,
        head=nn.Linear(8 * 8, 4),
        body=nn.Sequential(
            nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2), nn.AdaptiveAvgPool3d(2)
        ),
    )


def _shuffle(torch: Any, nn: Any) -> Any:
    def forward(self: Any, picture: Any) -> Any:
        left, right = nn.functional.relu6(self.into(picture)).chunk(2, 1)
        x = torch.cat([left, self.branch(right)], 1)
        x = x.view(x.shape[0], 2, 8, *x.shape[2:]).transpose(1, 2).flatten(1, 2)
        squeezed = nn.functional.hardsigmoid(self.squeeze(nn.functional.adaptive_avg_pool2d(x, 1)))
        return {"logits": self.out((x * squeezed).mean((2, 3)))}

    return module(
        nn,
        forward,
        into=nn.Conv2d(3, 16, 3, 2, 1),
        squeeze=nn.Conv2d(16, 16, 1),
        out=nn.Linear(16, 5),
        branch=nn.Sequential(
            nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8)
        ),
    )


def _neural_ode(torch: Any, nn: Any) -> Any:
    def forward(self: Any, state: Any) -> Any:
        for _ in range(4):
            one = self.slope(state)
            two = self.slope(state + 0.05 * one)
            state = state + 0.1 * two
        return {
            "next_state": state,
            "energy": torch.sqrt((state**2).sum(1)),
            "angle": torch.atan2(state[:, 0], state[:, 1]),
        }

    return module(nn, forward, slope=nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4)))


def _siamese(torch: Any, nn: Any) -> Any:
    def forward(self: Any, left: Any, right: Any) -> Any:
        return {
            "similarity": nn.functional.cosine_similarity(self.net(left), self.net(right)),
            "distance": nn.functional.pairwise_distance(self.net(left), self.net(right)),
        }

    return module(nn, forward, net=nn.Sequential(nn.Linear(10, 16), nn.SELU(), nn.Linear(16, 8)))


EDGES = Drawn("edges 2", lambda random, size: random.integers(0, 6, size))
# A graph is one call: nodes and edges are not rows.
GRAPH = {"nodes": (6, 16), "edges": (8, 24)}

PLAIN_CASES = [
    Case(
        name="lstm-tagger",
        family="recurrent",
        build=plain(_lstm_tagger),
        inputs={"tokens": ids(50)},
        sizes={"sequence": (2, 16)},
    ),
    Case(
        name="gru-lengths",
        family="recurrent",
        build=plain(_gru_lengths),
        sizes={},
        inputs={"x": normal("batch 12 6"), "lengths": ids(13, "batch", 1)},
    ),
    Case(name="rnn-cells", family="recurrent", build=plain(_rnn_cell_loop), inputs={"x": normal("batch 8 5")}),
    Case(
        name="dlrm",
        family="recommender",
        build=plain(_dlrm),
        inputs={"dense": uniform("batch 6"), "sparse": ids(40, "batch 4")},
    ),
    Case(name="deepfm", family="recommender", build=plain(_deepfm), inputs={"fields": ids(15, "batch 4")}),
    Case(
        name="two-tower",
        family="recommender",
        build=plain(_two_tower),
        sizes={"history": (1, 10)},
        inputs={"user": ids(30, "batch"), "item": ids(50, "batch", 1), "history": ids(50, "batch history")},
    ),
    Case(
        name="sasrec",
        family="recommender",
        build=plain(_sasrec),
        inputs={"history": ids(60)},
        sizes={"sequence": (2, 16)},
    ),
    Case(
        name="tab-transformer",
        family="tabular",
        build=plain(_tabular_transformer),
        inputs={
            "numbers": Drawn(
                "batch 5",
                lambda random, size: np.where(random.random(size) < 0.2, np.nan, random.standard_normal(size)).astype(
                    np.float32
                ),
            ),
            "kinds": ids(10, "batch 3"),
        },
    ),
    Case(name="tabnet", family="tabular", build=plain(_tabnet), inputs={"x": normal("batch 10")}),
    Case(
        name="bucketed-risk",
        family="tabular",
        build=plain(_bucketed),
        inputs={"age": uniform("batch", 16, 80), "income": uniform("batch", 0, 9000), "member": flags("batch")},
    ),
    Case(
        name="gcn",
        family="graph network",
        build=plain(_gcn),
        inputs={"x": normal("nodes 6"), "edges": EDGES},
        sizes=GRAPH,
    ),
    Case(
        name="gat",
        family="graph network",
        build=plain(_gat),
        sizes={"nodes": (3, 10)},
        inputs={
            "x": normal("batch nodes 5"),
            "adjacency": Drawn(
                "batch nodes nodes", lambda random, size: (random.random(size) < 0.4) | np.eye(size[1], dtype=bool)
            ),
        },
    ),
    Case(
        name="message-passing",
        family="graph network",
        build=plain(_message_passing),
        inputs={"x": normal("nodes 6"), "edges": EDGES},
        sizes=GRAPH,
    ),
    Case(
        name="pointnet",
        family="point clouds",
        build=plain(_pointnet),
        inputs={"points": normal("batch points 3")},
        sizes={"points": (8, 24)},
    ),
    Case(
        name="diffusion-unet",
        family="diffusion",
        build=plain(_diffusion_unet),
        inputs={"sample": normal("batch 3 16 16"), "timestep": ids(1000, "batch")},
    ),
    Case(
        name="detector-nms",
        family="detection",
        build=plain(_detector),
        inputs={"image": uniform("1 3 32 32")},
        # TorchScript has the operator once torchvision is imported, which its build for GPUs is not without one.
        targets=("onnx-fp32", "onnx-fp16", "openvino-fp32"),
        spec={"matches": {"found": {"boxes": "boxes", "scores": "scores"}}},
    ),
    Case(
        name="super-resolution",
        family="super-resolution",
        build=plain(_super_resolution),
        inputs={"picture": Drawn("batch 1 12 12", lambda random, size: random.integers(0, 256, size).astype(np.uint8))},
    ),
    Case(name="style-transfer", family="generation", build=plain(_style), inputs={"picture": uniform("batch 3 16 16")}),
    Case(
        name="conditional-gan",
        family="generation",
        build=plain(_generator),
        inputs={"noise": normal("batch 16"), "kind": ids(6, "batch")},
    ),
    Case(
        name="spatial-transformer",
        family="picture classifier",
        build=plain(_spatial_transformer),
        inputs={"picture": normal("batch 3 8 8")},
    ),
    Case(
        name="wavenet",
        family="speech",
        build=plain(_wavenet),
        inputs={"wave": normal("batch samples")},
        sizes={"samples": (16, 64)},
    ),
    Case(
        name="keyword-spotting", family="speech", build=plain(_keyword_spotting), inputs={"wave": normal("batch 160")}
    ),
    Case(
        name="crnn",
        family="text in pictures",
        build=plain(_crnn),
        inputs={"picture": normal("batch 1 16 width")},
        sizes={"width": (16, 40)},
    ),
    Case(name="viterbi", family="structured prediction", build=plain(_viterbi), inputs={"x": normal("batch 6 5")}),
    Case(name="normalising-flow", family="generation", build=plain(_flow), inputs={"x": normal("batch 6")}),
    Case(name="n-beats", family="time series", build=plain(_nbeats), inputs={"series": normal("batch 12")}),
    Case(
        name="temporal-fusion",
        family="time series",
        build=plain(_temporal_fusion),
        inputs={"past": normal("batch 10 4"), "future": normal("batch 5 2"), "kind": ids(5, "batch")},
    ),
    Case(
        name="capsules", family="picture classifier", build=plain(_capsules), inputs={"picture": normal("batch 1 8 8")}
    ),
    Case(
        name="gated-experts",
        family="mixture of experts",
        build=plain(_mixture_of_experts),
        inputs={"x": normal("batch 8")},
    ),
    Case(
        name="vq-vae", family="generation", build=plain(_vector_quantised), inputs={"picture": normal("batch 1 16 16")}
    ),
    Case(name="kolmogorov-arnold", family="tabular", build=plain(_kolmogorov), inputs={"x": normal("batch 4")}),
    Case(name="video-3d", family="video", build=plain(_video), inputs={"clip": normal("batch 3 4 12 12")}),
    Case(
        name="shuffle-net",
        family="picture classifier",
        build=plain(_shuffle),
        inputs={"picture": normal("batch 3 16 16")},
    ),
    Case(name="neural-ode", family="simulation", build=plain(_neural_ode), inputs={"state": normal("batch 4")}),
    Case(
        name="siamese",
        family="metric learning",
        build=plain(_siamese),
        inputs={"left": normal("batch 10"), "right": normal("batch 10")},
    ),
]
