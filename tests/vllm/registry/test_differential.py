"""The accelerated registry and the original, through all that plugins and tests do to one.

Two copies of the module are given the same, in random order. After each step both must have
answered the same, have raised the same, have called back the same and hold the same.
"""

import abc
import builtins
import collections
import gc
import random
import sys
from functools import partial
from types import FunctionType, SimpleNamespace

import pytest

from kvreg.vllm import registry

STEPS = 4_000
LOOKUPS = ("get_manager_class", "get_uniform_type_base_spec")
METHODS = (*LOOKUPS, "check_kv_cache_spec_registry", "_ensure_registered", "register")
ROLES = ("role", "other role", "", 0, ["not hashable"])


class Spec:
    pass


class EqualMeta(type):
    """All its classes are equal."""

    def __eq__(cls, other):
        return isinstance(other, EqualMeta)

    def __hash__(cls):
        return 7


class UnhashableMeta(type):
    __hash__ = None


class RaisingMeta(type):
    def __hash__(cls):
        raise RuntimeError(f"no hash of {cls.__name__}")


class ImpostorMeta(type):
    """Its classes take themselves for Spec."""

    def __eq__(cls, other):
        return other is Spec

    def __hash__(cls):
        return type.__hash__(Spec)


class HidingMeta(type):
    @property
    def __mro__(cls):
        return (cls, object)


class ChangingMeta(type):
    """It is changed while there are classes of it."""


METACLASSES = (
    [type] * 12
    + [abc.ABCMeta, EqualMeta, UnhashableMeta, RaisingMeta]
    + [ImpostorMeta, HidingMeta, ChangingMeta]
)


class FussyDict(dict):
    """A dict that is asked in other ways than a dict is."""

    def __contains__(self, key):
        return key is not Spec and super().__contains__(key)


class RefusingMapping:
    def __len__(self):
        return 3

    def __contains__(self, key):
        raise LookupError("this mapping refuses")


class Side:
    """One copy of the module, and what others hold of it."""

    def __init__(self, module):
        self.module = module
        self.registry = module.KVCacheSpecRegistry
        self.metadata = module.KVCacheSpecMetadata
        self.imported_specs = module._REGISTRY_KVCACHESPEC_LIST
        self.imported_roles = getattr(module, "_REGISTRY_ROLE_MANAGERS", {})  # from 0.30 on
        self.methods = {name: vars(self.registry)[name] for name in METHODS}
        self.codes = {name: self.methods[name].__func__.__code__ for name in METHODS}
        self.subclass = type("Sub", (self.registry,), {})
        self.log = []

    @property
    def specs(self):
        return self.module._REGISTRY_KVCACHESPEC_LIST

    def entry(self, cls, manager, base):
        return self.metadata(cls, manager, base)


class World:
    """Classes that both copies are given, and the steps."""

    def __init__(self, sides, rng, builtin_specs):
        self.sides = sides
        self.rng = rng
        self.current = None
        self.native_answers = 0
        self.wrappers = collections.Counter()  # of each method
        self.bootstrap = self.register_builtins
        builtin_specs.register_all_kvcache_specs = self.run_bootstrap
        self.classes = [Spec]
        self.managers = [type(f"Manager{i}", (), {}) for i in range(4)]
        for _ in range(6):
            self.make_class()

    def run_bootstrap(self, config):
        self.bootstrap(config)

    def register_builtins(self, config):
        self.current.log.append(("bootstrap", config))
        self.current.registry.register(Spec, self.managers[0])

    # --- both copies, side by side ---

    def outcome(self, side, run):
        self.current = side
        try:
            return "returned", run(side)
        except Exception as error:
            return "raised", type(error), error.args

    def both(self, run):
        accelerated, original = (self.outcome(side, run) for side in self.sides)
        assert accelerated == original
        if isinstance(original[1], type):  # classes can be equal without being the same
            assert accelerated[1] is original[1]

    def compare(self):
        for spec in self.some_specs():
            for name in LOOKUPS:
                for _ in range(2):  # the second may be answered from what is remembered
                    self.both(partial(self.look_up, name, spec))
        self.compare_other_calls()
        layers = {f"layer {i}": spec for i, spec in enumerate(self.some_specs())}
        for _ in range(2):
            self.both(lambda side: side.registry.check_kv_cache_spec_registry(layers))
        self.both(self.contents)
        accelerated, original = (side.log for side in self.sides)
        assert accelerated == original
        accelerated.clear()
        original.clear()
        self.count_native_answers()

    def count_native_answers(self):
        """Count how often the accelerated copy's original code does not run."""
        spec, calls = Spec(), []
        self.current = accelerated = self.sides[0]
        sys.setprofile(lambda frame, event, _: calls.append(frame) if event == "call" else None)
        try:
            accelerated.registry.get_manager_class(spec)
        except Exception:
            return
        finally:
            sys.setprofile(None)
            accelerated.log.clear()
        self.native_answers += not calls

    @staticmethod
    def look_up(name, spec, side):
        return getattr(side.registry, name)(spec)

    def compare_other_calls(self):
        (spec,) = self.some_specs(1)
        name = self.rng.choice(LOOKUPS)
        role = self.rng.choice(ROLES)
        calls = [
            lambda side: side.registry.get_manager_class(spec, role),
            lambda side: side.registry.get_manager_class(spec, role=role),
            lambda side: side.registry.get_manager_class(kvcache_spec=spec),
            lambda side: getattr(side.registry, name)(),
            lambda side: getattr(side.registry, name)(spec, None, None),
            lambda side: getattr(side.registry, name)(other=spec),
            lambda side: getattr(side.registry(), name)(spec),
            lambda side: getattr(side.subclass, name)(spec),
            lambda side: getattr(side.registry, name).__func__(side.registry, spec),
            lambda side: getattr(side.registry, name).__func__(side.subclass, spec),
            lambda side: getattr(side.registry, name).__func__(SimpleNamespace(), spec),
            lambda side: side.registry.check_kv_cache_spec_registry([spec]),
            lambda side: side.registry.check_kv_cache_spec_registry(FussyDict(x=spec)),
        ]
        self.both(self.rng.choice(calls))

    def contents(self, side):
        def plain(value):
            if isinstance(value, side.metadata):
                return type(value).__name__, sorted(map(repr, vars(value).items()))
            return value

        kept = [side.imported_specs, side.imported_roles, side.specs]
        kept = [mapping for mapping in kept if isinstance(mapping, dict)]
        return [[(id(key), plain(value)) for key, value in dict.items(kept_)] for kept_ in kept]

    def some_specs(self, count=3):
        return [object.__new__(self.rng.choice(self.classes)) for _ in range(count)]

    def step(self):
        steps = [name for name in dir(self) if name.startswith(("do_", "often_"))]
        weights = [5 if name.startswith("often_") else 1 for name in steps]
        (name,) = self.rng.choices(steps, weights)
        getattr(self, name)()

    def pick(self):
        cls, base = self.rng.choice(self.classes), self.rng.choice(self.classes)
        return cls, self.rng.choice([*self.managers, None]), self.rng.choice([base, Spec, None])

    def pick_derived(self):
        return self.rng.choice(self.classes[1:] or [type("Derived", (Spec,), {})])

    # --- registration ---

    def often_register(self):
        cls, manager, base = self.pick()
        self.both(lambda side: side.registry.register(cls, manager, base))

    def do_register_on_the_subclass(self):
        cls, manager, base = self.pick()
        self.both(lambda side: side.subclass.register(cls, manager, base))

    def do_register_role(self):
        role, manager = self.rng.choice(ROLES), self.rng.choice([*self.managers, None, 0])
        self.both(lambda side: side.registry.register_role_manager(role, manager))

    # --- the dicts ---

    def do_clear(self):
        name = self.rng.choice(["imported_specs", "imported_roles", "specs"])
        self.both(lambda side: getattr(side, name).clear())

    def often_pop(self):
        cls, _, _ = self.pick()
        self.both(lambda side: side.imported_specs.pop(cls, None) and None)

    def do_pop_item(self):
        self.both(lambda side: side.imported_specs.popitem()[0])

    def often_assign(self):
        cls, manager, base = self.pick()
        self.both(lambda side: side.specs.__setitem__(cls, side.entry(cls, manager, base)))

    def do_assign_what_is_no_metadata(self):
        cls, manager, base = self.pick()

        class Computed:
            @property
            def manager_class(this):
                self.current.log.append("computed")
                return manager

            uniform_type_base_spec = base

        value = self.rng.choice(
            [None, "text", 3, manager, SimpleNamespace(manager_class=manager), Computed()]
        )
        self.both(lambda side: side.specs.__setitem__(cls, value))

    def do_assign_a_subclass_of_the_metadata(self):
        cls, manager, base = self.pick()

        def assign(side):
            def get(entry, name):
                if name == "manager_class":
                    self.current.log.append("asked")
                return object.__getattribute__(entry, name)

            kind = type("Metadata", (side.metadata,), {"__getattribute__": get})
            side.specs[cls] = kind(cls, manager, base)

        self.both(assign)

    def do_assign_under_what_is_no_class(self):
        _, manager, base = self.pick()
        key = self.rng.choice(["text", 3, None, type.__hash__(Spec)])
        self.both(lambda side: side.specs.__setitem__(key, side.entry(Spec, manager, base)))

    def do_update(self):
        cls, manager, base = self.pick()
        self.both(lambda side: side.specs.update({cls: side.entry(cls, manager, base)}))

    def often_rebind(self):
        _, manager, base = self.pick()

        def new_mapping(side, kind):
            return {
                "as it was": lambda: side.imported_specs,
                "copy": lambda: dict(side.imported_specs),
                "empty": dict,
                "other": lambda: {Spec: side.entry(Spec, manager, base)},
                "counter": lambda: collections.Counter(side.imported_specs),
                "fussy": lambda: FussyDict(side.imported_specs),
                "refusing": RefusingMapping,
                "none": lambda: None,
            }[kind]()

        kinds = ["copy", "empty", "other", "counter", "fussy", "refusing", "none"]
        kind = self.rng.choice([*kinds, *["as it was"] * 10])
        name = self.rng.choice(["_REGISTRY_KVCACHESPEC_LIST"] * 3 + ["_REGISTRY_ROLE_MANAGERS"])
        if name == "_REGISTRY_ROLE_MANAGERS":
            mapping = self.rng.choice([None, {"role": manager}, "as it was"])
            self.both(
                lambda side: setattr(
                    side.module,
                    name,
                    side.imported_roles if mapping == "as it was" else mapping,
                )
            )
        else:
            self.both(lambda side: setattr(side.module, name, new_mapping(side, kind)))

    def do_delete_the_global(self):
        self.both(lambda side: delattr(side.module, "_REGISTRY_KVCACHESPEC_LIST"))

    # --- entries ---

    def often_change_an_entry_in_place(self):
        name = self.rng.choice(["manager_class", "uniform_type_base_spec"])
        value, index = self.rng.choice([*self.managers, None]), self.rng.randrange(10)
        way = self.rng.choice([self.set_attribute, self.set_in_dict, self.delete_attribute])

        def change(side):
            entries = [e for e in side.specs.values() if type(e) is side.metadata]
            way(entries[index % len(entries)], name, value)

        self.both(change)

    @staticmethod
    def set_attribute(entry, name, value):
        object.__setattr__(entry, name, value)

    @staticmethod
    def set_in_dict(entry, name, value):
        vars(entry)[name] = value

    @staticmethod
    def delete_attribute(entry, name, _):
        object.__delattr__(entry, name)

    def do_patch_the_metadata_class(self):
        manager = self.rng.choice(self.managers)

        def answer(entry):
            self.current.log.append("property")
            return manager

        def get(entry, name):
            self.current.log.append(("getattr", name))
            return manager

        patch = self.rng.choice(
            [
                ("manager_class", property(answer)),
                ("uniform_type_base_spec", property(answer)),
                ("manager_class", manager),
                ("__getattr__", get),
            ]
        )
        self.both(lambda side: setattr(side.metadata, *patch))
        self.compare()
        self.both(lambda side: delattr(side.metadata, patch[0]))

    # --- functions ---

    def often_wrap(self):
        name = self.rng.choice(METHODS)
        through = self.rng.choice(["bound", "function"])

        def wrap(side):
            wrapped = getattr(side.registry, name)

            @classmethod
            def wrapper(cls, *args, **kwargs):
                self.current.log.append((name, len(args), sorted(kwargs)))
                if through == "function":
                    return wrapped.__func__(cls, *args, **kwargs)
                return wrapped(*args, **kwargs)

            setattr(side.registry, name, wrapper)

        if self.wrappers[name] < 3:
            self.wrappers[name] += 1
            self.both(wrap)

    def do_unwrap(self):
        self.wrappers.clear()

        def unwrap(side):
            for name in METHODS:
                setattr(side.registry, name, side.methods[name])

        self.both(unwrap)

    def often_start_over(self):
        """Let most of the oddities go, as the fast path is not taken among them."""
        self.bootstrap = self.register_builtins
        self.wrappers.clear()
        self.classes = [Spec, *(cls for cls in self.classes[1:] if type(cls) is type)]

        def restore(side):
            for name in METHODS:
                setattr(side.registry, name, side.methods[name])
            side.module._REGISTRY_KVCACHESPEC_LIST = side.imported_specs
            side.module._REGISTRY_ROLE_MANAGERS = side.imported_roles
            side.imported_specs.clear()

        self.both(restore)

    def do_replace_by_a_mock(self):
        name = self.rng.choice(METHODS)
        answer = self.rng.choice(self.managers)
        self.both(lambda side: setattr(side.registry, name, lambda *args, **kwargs: answer))

    def do_delete_a_method(self):
        name = self.rng.choice(METHODS)
        self.both(lambda side: delattr(side.registry, name))
        self.compare()
        self.both(lambda side: setattr(side.registry, name, side.methods[name]))

    def do_change_a_function_s_code(self):
        name = self.rng.choice(METHODS[:-1])
        answer = self.rng.choice(["one", "another"])

        def change(side):
            function = FunctionType(
                compile(f"def f(*args, **kwargs): return {answer!r}", "test", "exec").co_consts[
                    0
                ],
                {},
            )
            side.methods[name].__func__.__code__ = function.__code__

        def restore(side):
            side.methods[name].__func__.__code__ = side.codes[name]

        self.both(change)
        self.compare()
        self.both(restore)

    def do_change_a_function_s_defaults(self):
        name = self.rng.choice(METHODS[:-1])
        kept = [side.methods[name].__func__.__defaults__ for side in self.sides]
        defaults = self.rng.choice([None, ("role",), (None, None)])
        self.both(lambda side: setattr(side.methods[name].__func__, "__defaults__", defaults))
        self.compare()
        for side, before in zip(self.sides, kept, strict=True):
            side.methods[name].__func__.__defaults__ = before

    def do_replace_the_bootstrap(self):
        def fails(config):
            self.current.log.append("fails")
            raise RuntimeError("the bootstrap failed", config)

        def registers_nothing(config):
            self.current.log.append("nothing")

        def looks_up(config):
            self.current.registry.register(Spec, self.managers[1])
            self.current.log.append(self.current.registry.get_manager_class(Spec()))

        before = self.bootstrap

        def wraps(config):
            self.current.log.append("wrapped")
            before(config)

        self.bootstrap = self.rng.choice(
            [fails, registers_nothing, looks_up, *[self.register_builtins] * 3]
            + ([wraps] if before == self.register_builtins else [])
        )
        if self.rng.random() < 0.5:
            self.both(lambda side: side.imported_specs.clear())

    def do_subclass(self):
        name = self.rng.choice(METHODS[:4])
        manager = self.rng.choice(self.managers)

        def subclass(side):
            def override(cls, *args, **kwargs):
                self.current.log.append("override")
                inherited = getattr(super(side.subclass, cls), name)
                return self.rng_free(manager, inherited, args, kwargs)

            side.subclass = type("Sub", (side.registry,), {name: classmethod(override)})

        self.both(subclass)

    @staticmethod
    def rng_free(manager, inherited, args, kwargs):
        return manager if kwargs else inherited(*args)

    def do_set_another_attribute(self):
        self.both(lambda side: setattr(side.registry, "note", self.rng.random() and None))

    def do_shadow_type(self):
        answer = type("Shadow", (), {"__mro__": (Spec, object)})
        shadow = self.rng.choice([type, lambda obj: answer, None])
        self.both(lambda side: setattr(side.module, "type", shadow))
        self.compare_lookups_only()
        self.both(lambda side: delattr(side.module, "type"))

    def compare_lookups_only(self):
        for spec in self.some_specs(4):
            for name in LOOKUPS:
                self.both(partial(self.look_up, name, spec))

    def do_replace_builtins_type(self):
        (spec,) = self.some_specs(1)

        def look_up(side):
            lookup = side.registry.get_manager_class
            kept = builtins.type
            builtins.type = lambda obj: Spec
            try:
                return [lookup(spec) for _ in range(3)]
            finally:
                builtins.type = kept

        self.both(look_up)

    # --- classes of specs ---

    def often_make_class(self):
        self.make_class()

    def make_class(self):
        bases = (self.rng.choice(self.classes), self.rng.choice(self.classes))
        if any(type(base) is not type for base in bases) or self.rng.random() < 0.5:
            bases = bases[:1]
        meta = self.rng.choice(METACLASSES)
        try:
            self.classes.append(meta("Derived", bases, {}))
        except TypeError:
            return  # of the bases' order, or of their metaclasses

    def often_forget_classes(self):
        while len(self.classes) > 12:
            self.classes.pop(self.rng.randrange(1, len(self.classes)))
        if self.rng.random() < 0.1:
            gc.collect()

    def do_change_bases(self):
        cls = self.pick_derived()
        try:
            cls.__bases__ = (self.rng.choice(self.classes),)
        except TypeError:
            return

    def do_change_a_metaclass(self):
        if "__hash__" in vars(ChangingMeta):
            del ChangingMeta.__hash__
            del ChangingMeta.__eq__
        else:
            ChangingMeta.__eq__ = lambda cls, other: True
            ChangingMeta.__hash__ = lambda cls: type.__hash__(Spec)

    def do_change_the_metaclass_of_a_class(self):
        cls = self.pick_derived()
        try:
            cls.__class__ = self.rng.choice([type, ImpostorMeta, ChangingMeta, RaisingMeta])
        except TypeError:
            return

    def do_set_an_attribute_of_a_class(self):
        type.__setattr__(self.rng.choice(self.classes), "note", self.rng.random())

    def do_clear_the_type_cache(self):
        sys._clear_type_cache()


@pytest.fixture(autouse=True)
def restored_metaclasses():
    yield
    for name in ("__hash__", "__eq__"):
        if name in vars(ChangingMeta):
            delattr(ChangingMeta, name)


@pytest.mark.parametrize("seed", range(4))
def test_the_two_never_differ(load, builtin_specs, seed):
    accelerated, original = load(), load()
    registry.accelerate(accelerated)
    world = World([Side(accelerated), Side(original)], random.Random(seed), builtin_specs)
    world.compare()
    for _ in range(STEPS):
        world.step()
        world.compare()
    assert world.native_answers > STEPS // 10
