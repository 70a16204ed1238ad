"""What is noted in a file and read back: typed, frozen, and the same JSON when it is written again.

A `Note` knows what its file did not say (an older version wrote it) and what its schema does not
know (a later one did, or a user), so that a folder that is loaded and saved loses nothing.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, NoReturn

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, structs

from heedmap.errors import fields_shown, quoted, within_lines


def _refuse(self: object, *_: Any, **__: Any) -> NoReturn:
    raise TypeError(
        f"this {type(self).__bases__[0].__name__} is part of a note, which is never changed: make "
        "another note with msgspec.structs.replace"
    )


class FrozenDict(dict[Any, Any]):
    """A dictionary that refuses to be changed, and shows what has room; `dict(it)` does neither."""

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __repr__(self) -> str:
        return f"{{{within_lines([f'{quoted(k)}: {quoted(v)}' for k, v in self.items()])}}}"


class FrozenList(list[Any]):
    """A list that refuses to be changed, and shows what has room; `list(it)` does neither."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)

    def __repr__(self) -> str:
        return f"[{within_lines([*map(quoted, self)])}]"


def _frozen(value: Any) -> Any:
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({key: _frozen(one) for key, one in value.items()})
    return FrozenList(map(_frozen, value)) if isinstance(value, list) else value


class Note(Struct, frozen=True, kw_only=True):
    """What a file says of one thing.

    A note is never changed, nor what it holds; `msgspec.structs.replace(note, seed=8)` makes
    another one. An interpreter shows its first lines; `msgspec.structs.asdict(note)` has all.

    Attributes:
        unnoted: what the version that wrote the file did not note; these attributes have the value
            that was usual then.
        more: what the file has besides, as plain JSON types; it is written back.
    """

    # In a file they have no name of their own: one of these could be a setting some day.
    unnoted: tuple[str, ...] = msgspec.field(default=(), name="<unnoted>")
    more: Mapping[str, Any] = msgspec.field(default_factory=dict, name="<more>")

    OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    """The attributes that a file leaves out where they are None."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Mapping | list):
                structs.force_setattr(self, name, _frozen(value))
            elif isinstance(value, tuple):
                structs.force_setattr(self, name, tuple(map(_frozen, value)))

    def __repr__(self) -> str:
        usual = {name: field.default for name, field in _fields(type(self)).items()}
        usual |= {"unnoted": (), "more": {}}
        return fields_shown(self, [name for name in usual if getattr(self, name) != usual[name]])


class _Field(NamedTuple):
    key: str
    default: Any


_OWN = frozenset({"unnoted", "more"})


@cache
def _fields(kind: type[Struct]) -> dict[str, _Field]:
    """What a file has of a struct, by attribute; what a class inherits comes after its own."""
    every = {one.name: _Field(one.encode_name, _default(one)) for one in structs.fields(kind)}
    above = kind.__base__
    inherited = _fields(above) if above is not None and issubclass(above, Note) else {}
    own = [name for name in every if name not in inherited and name not in _OWN]
    return {name: every[name] for name in [*own, *inherited]}


def _default(one: structs.FieldInfo) -> Any:
    return one.default_factory() if one.default_factory is not NODEFAULT else one.default


def to_json(value: object) -> Any:
    """A note, or what holds notes, as plain JSON types."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        found: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
        unnoted = value.unnoted if isinstance(value, Note) else ()
        optional = value.OPTIONAL if isinstance(value, Note) else frozenset[str]()
        for name, (key, default) in _fields(type(value)).items():
            one = getattr(value, name)
            left_out = (one is None and name in optional) or (name in unnoted and one == default)
            if one is not UNSET and not left_out:
                found[key] = to_json(one)
        return {**found, **value.more} if isinstance(value, Note) else found
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(one) for one in value]
    return value


def noted(made: Any, found: Any, place: str = "$") -> Any:
    """What was converted, with what its file did not say and what no schema knows.

    Args:
        made: what msgspec made of it.
        found: the plain JSON types that it was made of.
        place: where in the file it stands.

    Raises:
        msgspec.ValidationError: if something that may be left out is null.
    """
    if isinstance(made, Struct):
        changes: dict[str, Any] = {}
        fields = _fields(type(made))
        for name, (key, _) in fields.items():
            if key in found:
                changes[name] = noted(getattr(made, name), found[key], f"{place}.{key}")
        if not isinstance(made, Note):
            return structs.replace(made, **changes)
        for name in made.OPTIONAL & changes.keys():
            if changes[name] is None:
                said = f"Expected a value, got `null` - at `{place}.{fields[name].key}`"
                raise msgspec.ValidationError(said)
        known = {field.key for field in fields.values()} | {made.__struct_config__.tag_field}
        unnoted = (name for name, field in fields.items() if field.key not in found)
        changes["unnoted"] = tuple(name for name in unnoted if name not in made.OPTIONAL)
        changes["more"] = {key: value for key, value in found.items() if key not in known}
        return structs.replace(made, **changes)
    if isinstance(made, tuple):
        several = zip(made, found, strict=True)
        return tuple(noted(one, held, f"{place}[...]") for one, held in several)
    if isinstance(made, Mapping) and any(isinstance(one, Struct) for one in made.values()):
        return {key: noted(one, found[key], f"{place}[...]") for key, one in made.items()}
    return made
