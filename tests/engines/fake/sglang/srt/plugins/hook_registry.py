"""SGLang's registry in short: hooks are applied when they are registered."""
import enum
import functools
import pkgutil


class HookType(enum.Enum):
    AROUND = "around"


class HookRegistry:
    @classmethod
    def register(cls, target, hook, hook_type=None, *, source=None):
        owner, _, name = target.rpartition(".")
        owner = pkgutil.resolve_name(owner)
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args, **kwargs):
            return hook(original, *args, **kwargs)

        setattr(owner, name, wrapped)
