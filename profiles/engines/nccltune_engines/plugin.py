"""What both engines' doors share: the decision at start, the signatures, the group's state, the dispatch."""
import inspect
import logging
import os
from importlib import metadata

from . import __version__
from .agree import agree
from .receipt import Receipt
from .table import Choice, TableError, load

log = logging.getLogger("nccltune")
MODE = ("eager", "graph")  # by whether the stream is capturing


class Refused(Exception):
    """Nothing is hooked, with the reason."""


def version_tuple(text):
    """0.5.12.post1 → (0, 5, 12): what the known ranges are written in."""
    numbers = []
    for part in text.split("+")[0].split(".")[:3]:
        digits = part[:len(part) - len(part.lstrip("0123456789"))]
        if not digits or digits != part:
            raise Refused(f"version {text} is not understood")
        numbers.append(int(digits))
    return tuple(numbers)


def check_version(engine, first, last):
    version = metadata.version(engine)
    if not version_tuple(first) <= version_tuple(version) <= version_tuple(last):
        raise Refused(f"{engine} {version} is not known to this plugin, which knows {first} to {last}")
    return version


def names_of(function):
    """Parameters as this plugin calls them: names, and '*' before those that are by name only."""
    found, star = [], False
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not star:
            found.append("*")
            star = True
        found.append({p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name)
    return " ".join(found)


def changed(owner, signatures):
    """The first method that is not as known, or None. Further parameters that have a default do no harm."""
    for name, known in signatures.items():
        function = getattr(owner, name, None)
        if function is None:
            return f"{owner.__name__}.{name} is gone"
        function = inspect.unwrap(function)
        found = names_of(function)
        extra = [p for p in list(inspect.signature(function).parameters.values())[len(known.replace("* ", "").split()):]
                 if p.default is p.empty]
        if found != known and (extra or not f"{found} ".startswith(f"{known} ")):
            return f"{owner.__name__}.{name}({found}) is not the known ({known})"
    return None


class State:
    """Of one group: what it may use, decided once, by all its ranks."""

    def __init__(self, door, group, session):
        self.group, self.session, self.name = group, session, door.name(group)
        self.choices, self.traced = {}, {}  # by (type, capturing); traced: what leaves the input as it is
        self.types = {}  # PyTorch's type → its name in tables and receipts
        try:
            self.verdict = self._decide(door, group, session)
        except Exception as e:  # an engine's objects are not ours
            self.verdict = f"off: {type(e).__name__}: {e}"
        label = f"{self.name} of {door.world(group)}"
        session.receipt.groups[label] = (self.verdict, [
            (self.types[t], MODE[m], c) for found in (self.choices, self.traced) for (t, m), c in found.items()])
        session.receipt.write()
        log.log(logging.INFO if self.verdict == "on" else logging.WARNING, "nccltune: group %s: %s", label, self.verdict)

    def _decide(self, door, group, session):
        import torch
        table, world = session.table, door.world(group)
        if world != table.ranks:
            return f"off: the table is for {table.ranks} ranks"
        runners, missing = door.runners(group)
        session.receipt.libraries.update(door.libraries(group))
        key = f"{self.name}/{'-'.join(map(str, door.ranks(group)))}/{session.count(self.name)}"
        mine = f"{__version__} {session.version} {table.hash[:16]} {' '.join(sorted(runners))}"
        store = torch.distributed.distributed_c10d._get_default_store()
        verdict = agree(store, key, door.rank(group), world, mine)
        if verdict != "on":
            return verdict
        for label, reason in missing.items():
            if any(r.backend == label for r in table.rows):
                log.warning("nccltune: group %s: %s is not to be had: %s; those sizes stay with the engine", self.name, label, reason)
        types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "int32": torch.int32}
        self.types = {torch_type: dtype for dtype, torch_type in types.items()}
        for dtype, torch_type in types.items():
            for capturing in (False, True):
                rows = table.choices("all_reduce", MODE[capturing], dtype)
                for found, places in ((self.choices, ("in", "out")), (self.traced, ("out",))):
                    made = self._choice(rows, runners, dtype, places)
                    if made.rows:
                        found[torch_type, capturing] = made
        return "on"

    @staticmethod
    def _choice(rows, runners, dtype, places):
        """Rows with the first way of doing them that the engine has and the row serves."""
        kept, ways = [], []
        for c in rows:
            way = next((runners[c[2].backend][p] for p in places
                        if (dtype, p) in c[2].serves and p in runners.get(c[2].backend, ())), None)
            if way is not None:
                kept.append(c)
                ways.append(way)
        return Choice(kept, ways)

    def run(self, choices, original, tensor, capturing):
        choice = choices.get((tensor.dtype, capturing()))
        # One with gaps was never measured: what takes a pointer and a length would reduce what lies between.
        if choice is None or tensor.is_cpu or not tensor.is_contiguous():
            return original(self.group, tensor)
        i = choice.find(tensor.nbytes)
        if i < 0:
            choice.left += 1
            return original(self.group, tensor)
        out = choice.runners[i](tensor)
        if out is None:
            choice.declined[i] += 1
            return original(self.group, tensor)
        choice.served[i] = n = choice.served[i] + 1
        if n & (n - 1) == 0:
            self.session.receipt.write()
        return out


class Session:
    """Of one process: the table and its door."""

    def __init__(self, door, table, version, receipt):
        self.door, self.table, self.version, self.receipt, self.counts = door, table, version, receipt, {}

    def count(self, name):
        """How many groups of this name came before: an engine may make one anew."""
        self.counts[name] = self.counts.get(name, -1) + 1
        return self.counts[name]

    def state(self, group):
        found = group.__dict__.get("_nccltune")
        if found is None or found.session is not self:
            found = group.__dict__["_nccltune"] = State(self.door, group, self)
        return found


session = None  # of this process


def wrappers(session):
    """Two functions (original, group, tensor) for a door to hang in: for calls, and for those that torch.compile traced,
    which must leave their input as it is. Nothing of them is there in a replay of a graph."""
    import torch
    compiling, capturing, state_of = torch.compiler.is_compiling, torch.cuda.is_current_stream_capturing, session.state

    def all_reduce(original, group, input_):
        if compiling():  # traced: the choice is made when the traced call runs, where the door says
            return original(group, input_)
        state = group.__dict__.get("_nccltune")
        if state is None:
            state = state_of(group)
        return state.run(state.choices, original, input_, capturing)

    def traced(original, group, input_):
        state = group.__dict__.get("_nccltune") or state_of(group)
        return state.run(state.traced, original, input_, capturing)

    return all_reduce, traced


def start(door_class):
    """The entry point's work; never raises."""
    global session
    env = os.environ
    told, path = env.get("NCCLTUNE_BACKENDS", ""), env.get("NCCLTUNE_BACKENDS_TABLE", "")
    if env.get("NCCLTUNE_DISABLE", "") not in ("", "0") or not (told or path) or session is not None:
        return
    door = door_class()
    receipt = Receipt(door.engine, told)
    try:
        if not told or not path:
            raise Refused("NCCLTUNE_BACKENDS and NCCLTUNE_BACKENDS_TABLE belong together, one is missing")
        version = receipt.version = check_version(door.engine, *door.known)
        made = Session(door, load(path, door.engine, told), version, receipt)
        owner = door.target()
        reason = changed(owner, door.signatures)
        if reason is not None:
            raise Refused(f"{door.engine} {version}: {reason}")
        door.hook(owner, *wrappers(made))
        session, receipt.state = made, "on"
        log.info("nccltune: %s %s takes backends from %s", door.engine, version, path)
    except Exception as e:  # of an engine's import too: it goes on as without a plugin
        receipt.state = f"off: {path}: {e}" if isinstance(e, TableError) else f"off: {e}"
        log.warning("nccltune: does nothing, %s", receipt.state)
    receipt.write()
