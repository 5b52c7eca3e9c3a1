"""Constructors of mixins: `ConstructionHook` reports the end of the construction; the functions check arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


class ConstructionHook:
    """Tells an object when its outermost ``__init__`` returns or fails, in any order of its bases.

    Each ``__init__`` of a subclass is wrapped to count how many of them run. Constructors of other classes are not
    counted.
    """

    _construction_depth = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _counting(cls.__init__)  # type: ignore[method-assign]

    def _construction_finished(self) -> None: ...

    def _construction_failed(self) -> None:
        """Release resources of the constructors: the caller gets an exception, not the object."""


def _counting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def wrapper(self: ConstructionHook, *args: Any, **kwargs: Any) -> None:
        self._construction_depth += 1
        try:
            init(self, *args, **kwargs)
            if self._construction_depth == 1:
                self._construction_finished()
        except BaseException:
            if self._construction_depth == 1:
                self._construction_failed()
            raise
        finally:
            self._construction_depth -= 1

    return wrapper


def takes_keyword_after(cls: type, mixin: type, name: str) -> bool:
    """Whether a keyword that the constructor of `mixin` passes on reaches a later constructor that takes it."""
    bases = cls.__mro__
    for base in bases[bases.index(mixin) + 1 :]:
        init = vars(base).get("__init__")
        if init is None or base is object:
            continue
        parameters = inspect.signature(init).parameters
        if name in parameters:
            return True
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return False
    return False


def check_no_arguments_left(cls: type, next_init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError that names the arguments left for ``object.__init__``, whose own error does not name them."""
    if (args or kwargs) and getattr(next_init, "__objclass__", None) is object:
        unexpected = ", ".join([*map(repr, args), *sorted(kwargs)])
        raise TypeError(f"{cls.__name__}() got unexpected arguments: {unexpected}{similar_arguments(cls, kwargs)}")


def similar_arguments(cls: type, arguments: Iterable[str], others: Iterable[str] = ()) -> str:
    """The end of a message: the arguments of the class, or the `others`, that the misspelt ones resemble."""
    import difflib  # only a mistake needs it

    known = {name for each in cls.__mro__ if "__init__" in vars(each) for name in inspect.signature(each).parameters}
    known.update(others)
    close = {similar for name in arguments for similar in difflib.get_close_matches(name, known, n=1)}
    meant = sorted(close.difference(arguments))
    return f"; did you mean {', '.join(meant)}?" if meant else ""
