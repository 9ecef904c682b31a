"""Every name that we use of the libraries behind engines stands in them: TensorRT 10 and 11, and TensorRT-RTX.

TensorRT imports where its own libraries are, beside a GPU, and nowhere else. Its bindings hold every name as text all
the same, so what stands in our code is looked up there. What objects have which attribute is asked of TensorRT-RTX,
which shares the interface and imports without a GPU.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paritygate.engine.settings import HardwareCompatibility

_ROOT = Path(__file__).resolve().parents[2]
_PLACES = (
    "src/paritygate/engine/*.py",
    "convert/engine/*.py",
    "validate/runners/engine_profile.py",
    "validate/runners/tensorrt.py",
)
# What our code calls the library's objects, and their classes. A parameter that is declared as Any has one of these
# names, or is said below not to be the library's.
_CLASSES = {
    "trt": None,
    "builder": "Builder",
    "config": "IBuilderConfig",
    "cuda_engine": "ICudaEngine",
    "engine": "ICudaEngine",
    "error": "ParserError",
    "inspector": "EngineInspector",
    "layer": "ILayer",
    "module": None,
    "network": "INetworkDefinition",
    "output": "ITensor",
    "parser": "OnnxParser",
    "runtime": "Runtime",
    "tensor": "ITensor",
}
_ENUMS = {"severity"}
# As which attributes objects of ours keep them.
_KEPT_AS = {"builder", "cuda_engine", "module", "network", "parser", "runtime"}
# Declared as Any, and not the library's: objects of Polygraphy, and plain values.
_NOT_THE_LIBRARYS = {"runner"}
# Only TensorRT-RTX builds ahead of time; nothing reaches these with the other.
_RTX_ALONE = {"get_compute_capability", "num_compute_capabilities"}
# In capitals, and no names of the library's: what ONNX, the inspector of engines and we ourselves say.
_OTHER_CAPITALS = {
    "BFLOAT16",
    "DOUBLE",
    "FLOAT16",
    "FLOAT4E2M1",
    "FLOAT8E4M3FN",
    "NOOP",
    "POLYGRAPHY_USE_TENSORRT_RTX",
    "REFORMAT",
}
_METHODS_OF_VALUES = set(dir(str)) | set(dir(tuple)) | set(dir(dict))
_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]+")


@dataclass
class Uses:
    """What files use of the library.

    Attributes:
        attributes: Every attribute of the library's objects, wherever in a chain, and where it stands.
        members: `(class or None for the module, first attribute)`.
        paths: Chains that start at the module, such as `("BuilderFlag", "TF32")`.
        probed: Names that are asked for as text, and may be missing.
        undeclared: Parameters that are declared as Any, used with attributes, and have no name that is known.
    """

    attributes: dict[str, str] = field(default_factory=dict)
    members: set[tuple[str, str]] = field(default_factory=set)
    paths: set[tuple[str, ...]] = field(default_factory=set)
    probed: dict[str, str] = field(default_factory=dict)
    undeclared: dict[str, str] = field(default_factory=dict)


class Collector(ast.NodeVisitor):
    """Collects the uses of one file, function by function."""

    def __init__(self, uses: Uses, place: str, makers: set[str]) -> None:
        """Collect into `uses`; `makers` are the functions whose answers may be the library's."""
        self.uses = uses
        self.place = place
        self.makers = makers
        self.foreign: set[str] = set()
        self.fed: set[str] = set()
        self.derived: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before = self.foreign, self.derived, self.fed
        self.foreign, self.derived, self.fed = set(self.foreign), set(self.derived), set(self.fed)
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in every:
            if argument.arg in _CLASSES and not (_says_any(argument.annotation) or _is_module(argument.annotation)):
                self.foreign.add(argument.arg)
            elif _says_any(argument.annotation) and argument.arg not in {*_CLASSES, *_ENUMS, *_NOT_THE_LIBRARYS}:
                self._note_undeclared(node, argument.arg)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                self._note_assigned(inner)
        for inner in ast.walk(node):
            if isinstance(inner, ast.For | ast.comprehension) and not self._is_fed(inner.iter):
                self.foreign.update(name.id for name in ast.walk(inner.target) if isinstance(name, ast.Name))
        self.generic_visit(node)
        self.foreign, self.derived, self.fed = before

    def _note_undeclared(self, node: ast.FunctionDef, name: str) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == name:
                self.uses.undeclared[name] = f"{self.place}:{inner.lineno}"

    def _note_assigned(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if self._root(node.value) is not None:
            self.derived.update(name for name in names if name not in _CLASSES)
        elif self._is_fed(node.value):
            self.fed.update(names)
        elif isinstance(node.value, ast.Call):
            self.foreign.update(names)

    def _is_fed(self, node: ast.AST) -> bool:
        """Return whether something of the library goes into an expression, in other ways than as text that is read."""
        if self._root(node) is not None or (isinstance(node, ast.Name) and node.id in self.fed | self.makers):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return False
        return any(map(self._is_fed, ast.iter_child_nodes(node)))

    def _root(self, node: ast.AST) -> ast.AST | None:
        """Return where a chain of attributes, calls and subscripts reaches an object of the library, or None."""
        if isinstance(node, ast.Name):
            is_known = node.id in _CLASSES and node.id not in self.foreign
            return node if is_known or node.id in self.derived else None
        if isinstance(node, ast.Attribute):
            inner = self._root(node.value)
            return inner if inner is not None else (node if node.attr in _KEPT_AS else None)
        if isinstance(node, ast.Call):
            return self._root(node.func) if isinstance(node.func, ast.Attribute) else None
        return self._root(node.value) if isinstance(node, ast.Subscript) else None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root = self._root(node)
        if root is not None and root is not node:
            self._note(node, root)
        self.generic_visit(node)

    def _note(self, node: ast.Attribute, root: ast.AST) -> None:
        name = root.id if isinstance(root, ast.Name) else root.attr if isinstance(root, ast.Attribute) else ""
        is_first = node.value is root
        if not is_first and node.attr in _METHODS_OF_VALUES:
            return
        self.uses.attributes.setdefault(node.attr, f"{self.place}:{node.lineno}")
        owner = _CLASSES.get(name)
        if is_first and owner is not None:
            self.uses.members.add((owner, node.attr))
        if name in _CLASSES and owner is None and (path := _plain_path(node, root)):
            self.uses.paths.add(path)

    def visit_Call(self, node: ast.Call) -> None:
        if len(node.args) > 1 and self._root(node.args[0]) is not None:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier():
                self.uses.probed.setdefault(name.value, f"{self.place}:{node.lineno}")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and _CAPITALS.fullmatch(node.value) and node.value not in _OTHER_CAPITALS:
            self.uses.probed.setdefault(node.value, f"{self.place}:{node.lineno}")


def _says_any(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def _is_module(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "ModuleType"


def _plain_path(node: ast.AST, root: ast.AST) -> tuple[str, ...]:
    """Return the names from `root` to `node`, if there are attributes alone between them."""
    names: list[str] = []
    while node is not root:
        if not isinstance(node, ast.Attribute):
            return ()
        names.insert(0, node.attr)
        node = node.value
    return tuple(names)


def uses_in(texts: dict[str, str]) -> Uses:
    """Return what the files, by their place, use of the library."""
    uses = Uses()
    trees = {place: ast.parse(text) for place, text in texts.items()}
    makers = {name for tree in trees.values() for name in _makers(tree)}
    for place, tree in trees.items():
        Collector(uses, place, makers).visit(tree)
    return uses


def _makers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "Any" in ast.unparse(node.returns or ast.Constant(None)):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polygraphy"):
            yield from (alias.name for alias in node.names)


def our_files() -> dict[str, str]:
    """Return the text of every file that touches the library, by its place."""
    files = [path for pattern in _PLACES for path in sorted(_ROOT.glob(pattern))]
    return {str(path.relative_to(_ROOT)): path.read_text(encoding="utf-8") for path in files}


class Bindings:
    """What a wheel's bindings have names of, as text."""

    def __init__(self, wheel: Path) -> None:
        archive = zipfile.ZipFile(wheel)
        (library,) = (name for name in archive.namelist() if name.endswith("/tensorrt.so"))
        self._text = archive.read(library)
        (package,) = (name for name in archive.namelist() if re.fullmatch(r"tensorrt\w*/__init__\.py", name))
        tree = ast.parse(archive.read(package))
        self._python = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._python |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self.has = functools.cache(self._has)

    def _has(self, name: str) -> bool:
        """Return whether it stands there as a string of its own, or as the end of one and in the documentation.

        Linkers store a string that ends another one, as `code` ends `error_code`, inside of that one alone. The end
        of a word is not a name, so the word has to stand somewhere by itself too.
        """
        text = name.encode()
        if b"\0" + text + b"\0" in self._text or name in self._python:
            return True
        if text + b"\0" not in self._text:
            return False
        # Members of enums end others after a line: `INPUT`, and `CONDITIONAL_INPUT`.
        alone = rb"(?<!\w)" + text + rb"(?![\w\0])"
        return re.search(alone + (rb"|_" + text + rb"\0" if name.isupper() else b""), self._text) is not None


@pytest.fixture(scope="module")
def bindings() -> dict[int, Bindings]:
    """Return the bindings of TensorRT by their major version."""
    folder = Path(sys.prefix) / "wheels"
    constraints = (_ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^(tensorrt-cu\d+-bindings)==((\d+)[\d.]+)$", constraints, re.MULTILINE)
    wheels = {int(major): [*folder.glob(f"{_file_name(name)}-{version}-*.whl")] for name, version, major in pins}
    assert set(wheels) == {10, 11}
    missing = [f"TensorRT {major}" for major, found in wheels.items() if not found]
    if missing:
        pytest.skip(f"{folder} holds no bindings of {' and '.join(missing)}: make test downloads them")
    return {major: Bindings(found[0]) for major, found in wheels.items()}


def _file_name(distribution: str) -> str:
    return distribution.replace("-", "_")


@pytest.fixture(scope="module")
def uses() -> Uses:
    return uses_in(our_files())


def test_the_files_are_found_and_their_uses_collected(uses: Uses) -> None:
    assert {
        "src/paritygate/engine/capabilities.py",
        "src/paritygate/engine/inspecting.py",
        "convert/engine/network.py",
    } <= set(our_files())
    assert "validate/runners/tensorrt.py" in our_files()
    assert {"create_network", "parse_from_file", "clear_flag", "get_tensor_mode"} <= set(uses.attributes)
    assert {("IBuilderConfig", "clear_flag"), ("OnnxParser", "num_errors"), ("ILayer", "get_output")} <= uses.members
    assert {("BuilderFlag", "TF32"), ("NetworkDefinitionCreationFlag", "STRONGLY_TYPED")} <= uses.paths
    assert {"BuilderFlag", "set_compute_capability", "STRONGLY_TYPED"} <= set(uses.probed)


def test_whatever_is_of_any_type_is_known_by_its_name(uses: Uses) -> None:
    assert uses.undeclared == {}


@pytest.mark.parametrize("major", [10, 11])
def test_every_attribute_that_we_use_is_in_tensorrt(uses: Uses, bindings: dict[int, Bindings], major: int) -> None:
    wanted = {name: place for name, place in uses.attributes.items() if name not in _RTX_ALONE}

    assert wanted
    assert {name: place for name, place in wanted.items() if not bindings[major].has(name)} == {}


@pytest.mark.parametrize("major", [10, 11])
def test_every_level_of_hardware_compatibility_is_in_tensorrt(bindings: dict[int, Bindings], major: int) -> None:
    assert [level.name for level in HardwareCompatibility if not bindings[major].has(level.name)] == []


def test_every_name_that_may_be_missing_is_somewhere(uses: Uses, bindings: dict[int, Bindings]) -> None:
    rtx = _names_of_rtx() if importlib.util.find_spec("tensorrt_rtx_bindings") else set()
    missing = {
        name: place
        for name, place in uses.probed.items()
        if name not in rtx and not any(found.has(name) for found in bindings.values())
    }

    assert missing == {}


def test_what_is_said_to_be_of_rtx_alone_is(uses: Uses, bindings: dict[int, Bindings]) -> None:
    assert set(uses.attributes) >= _RTX_ALONE
    assert [name for name in _RTX_ALONE for found in bindings.values() if found.has(name)] == []


@pytest.mark.parametrize("major", [10, 11])
@pytest.mark.parametrize(
    "name",
    ["builder_optimisation_level", "et_layer", "ame", "create_netwrok", "TF32S", "get_tensor_mod", "execute_async_v2"],
)
def test_a_name_that_is_made_up_is_not_found(bindings: dict[int, Bindings], major: int, name: str) -> None:
    assert not bindings[major].has(name)


@pytest.mark.parametrize("major", [10, 11])
@pytest.mark.parametrize("name", ["name", "dtype", "code", "Builder", "INT8", "num_errors", "serialize", "nptype"])
def test_a_name_that_is_stored_inside_of_another_is_found(bindings: dict[int, Bindings], major: int, name: str) -> None:
    assert bindings[major].has(name)


@pytest.mark.parametrize(
    "name", ["FP16", "OBEY_PRECISION_CONSTRAINTS", "EXPLICIT_BATCH", "platform_has_fast_fp16", "precision"]
)
def test_what_tensorrt_11_removed_is_in_10_alone(bindings: dict[int, Bindings], name: str) -> None:
    assert bindings[10].has(name)
    assert not bindings[11].has(name)


@pytest.mark.parametrize(
    ("code", "attribute"),
    [
        ("def f(library):\n    trt = library.module\n    trt.BuilderFlag.FP16", "FP16"),
        ("def f(library):\n    library.module.BuilderFlag.FP16", "FP16"),
        ("def f(config: Any):\n    config.set_falg(1)", "set_falg"),
        ("def f(network: Any):\n    for layer in them(network):\n        layer.precison = 1", "precison"),
        ("def f(parsed: Parsed):\n    parsed.builder.create_netwrok()", "create_netwrok"),
        ("def f(network: Any):\n    found = network.get_layer(0)\n    found.get_otput(0)", "get_otput"),
        ("def f(engine: Any):\n    return [engine.get_name(i) for i in range(engine.num_io)]", "num_io"),
        ("def f(self):\n    self._engine.cuda_engine.made_up", "made_up"),
    ],
)
def test_this_guard_sees_an_attribute_of_the_library(code: str, attribute: str) -> None:
    assert attribute in uses_in({"file.py": code}).attributes


@pytest.mark.parametrize(
    "code",
    [
        "def f(engine: Path):\n    engine.parent",
        "def f(model: Any):\n    error = unsupported(model)\n    error.hint",
        "def f(tensor: TensorSpec):\n    tensor.shape",
    ],
)
def test_this_guard_leaves_objects_of_ours_alone(code: str) -> None:
    assert uses_in({"file.py": code}).attributes == {}


def test_this_guard_sees_names_given_as_text() -> None:
    code = 'def f(trt: ModuleType):\n    getattr(trt, "IMadeUp", None)\n    return "MADE_UP" in members(trt)'

    assert set(uses_in({"file.py": code}).probed) == {"IMadeUp", "MADE_UP"}


def test_this_guard_sees_a_parameter_that_hides_the_library() -> None:
    assert set(uses_in({"file.py": "def f(net: Any):\n    net.num_layers"}).undeclared) == {"net"}


def _names_of_rtx() -> set[str]:
    trt = importlib.import_module("tensorrt_rtx_bindings")
    names = set(dir(trt))
    for value in vars(trt).values():
        if isinstance(value, type):
            names |= set(dir(value))
    return names


@pytest.mark.rtx
def test_every_object_has_the_attributes_that_we_use_of_it(uses: Uses) -> None:
    trt = importlib.import_module("tensorrt_rtx_bindings")

    assert uses.members
    assert [f"{owner}.{name}" for owner, name in sorted(uses.members) if not hasattr(getattr(trt, owner), name)] == []


@pytest.mark.rtx
def test_every_path_from_the_module_leads_somewhere(uses: Uses) -> None:
    trt = importlib.import_module("tensorrt_rtx_bindings")
    assert uses.paths
    assert [".".join(path) for path in sorted(uses.paths) if functools.reduce(_part, path, trt) is None] == []


def _part(found: Any, name: str) -> Any:  # noqa: ANN401 - whatever stands there
    return getattr(found, name, None)


@pytest.mark.rtx
def test_every_attribute_that_we_use_is_in_rtx(uses: Uses) -> None:
    names = _names_of_rtx()

    assert {name: place for name, place in uses.attributes.items() if name not in names} == {}


# Objects of Polygraphy that we call methods of, with arguments by name.
_METHODS = {"add": "Profile.add", "infer": "TrtRunner.infer"}


def calls_of_polygraphy(text: str) -> Iterator[tuple[str, str, set[str], int]]:
    """Yield `(module, name, keywords, line)` of every call of what a file imports from Polygraphy, and of methods."""
    tree = ast.parse(text)
    imported = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polygraphy")
        for alias in node.names
    }
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
                module = imported[node.func.id]
                yield str(module), node.func.id, set(_keywords(function, node)), node.lineno
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
                keywords = set(_keywords(function, node))
                if keywords:
                    yield "polygraphy.backend.trt", _METHODS[node.func.attr], keywords, node.lineno


def _keywords(function: ast.FunctionDef, call: ast.Call) -> Iterator[str]:
    """Yield the names of a call's keywords; of a dict that is unpacked, the keys that it was given before."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg
            continue
        assert isinstance(keyword.value, ast.Name), ast.unparse(call)
        for node in ast.walk(function):
            if getattr(node, "lineno", call.lineno) < call.lineno:
                yield from _keys(node, keyword.value.id)


def _keys(node: ast.AST, name: str) -> Iterator[str]:
    """Yield the keys that a statement or an expression gives to the dict of this name."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == name:
        assert isinstance(node.slice, ast.Constant), ast.unparse(node)
        yield str(node.slice.value)
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
        assert isinstance(node.value, ast.Dict), ast.unparse(node)
        yield from (str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))


_PARAMETERS = """
import importlib, inspect, json, sys
from paritygate.engine.library import open_library
open_library("tensorrt-rtx")

def named(function):
    return [name for name, item in inspect.signature(function).parameters.items() if item.kind != item.VAR_KEYWORD]

def parameters(module, name):
    name, _, method = name.partition(".")
    found = getattr(importlib.import_module(module), name)
    if method:
        inner = getattr(found, method + "_impl", None)
        return named(getattr(found, method)) + ([] if inner is None else named(inner))
    if not inspect.isclass(found):
        # A loader that is called at once: its own arguments, and those of its call.
        made = "".join(part.title() for part in name.split("_"))
        loader = getattr(importlib.import_module(module), made)
        return [*named(loader.call_impl), *(item for kind in loader.__mro__[:-1] for item in named(kind.__init__))]
    return [item for kind in found.__mro__[:-1] for item in named(kind.__init__)]

print(json.dumps([parameters(*item) for item in json.load(sys.stdin)]))
"""


@pytest.mark.rtx
def test_polygraphy_takes_every_argument_that_we_give() -> None:
    calls = [(place, *call) for place, text in our_files().items() for call in calls_of_polygraphy(text)]
    asked = json.dumps([(module, name) for _, module, name, _, _ in calls])
    # In a process of its own: Polygraphy is set to one library for good.
    answer = subprocess.run(
        [sys.executable, "-c", _PARAMETERS], input=asked, check=True, capture_output=True, text=True
    )

    assert {"CreateConfig", "CreateConfigRTX", "engine_bytes_from_network"} <= {name for _, _, name, _, _ in calls}
    assert {"Profile.add", "TrtRunner.infer"} <= {name for _, _, name, _, _ in calls}
    (config,) = (keywords for _, _, name, keywords, _ in calls if name == "CreateConfig")
    assert {"profiles", "memory_pool_limits", "version_compatible", "load_timing_cache"} <= config
    assert [
        f"{place}:{line}: {name}({keyword}=...)"
        for (place, _, name, keywords, line), known in zip(calls, json.loads(answer.stdout), strict=True)
        for keyword in sorted(keywords - set(known))
    ] == []


def test_this_guard_sees_the_keys_of_an_unpacked_dict() -> None:
    code = """
def build(level):
    from polygraphy.backend.trt import CreateConfig
    asked: dict[str, object] = {"profiles": []}
    if level:
        asked["made_up"] = level
    config = CreateConfig(**asked, other=1)
    asked["later"] = 1
"""

    assert list(calls_of_polygraphy(code)) == [
        ("polygraphy.backend.trt", "CreateConfig", {"profiles", "made_up", "other"}, 7)
    ]
