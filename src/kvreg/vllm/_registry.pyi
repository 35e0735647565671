from collections.abc import Callable, Mapping

def put_fronts(
    registry: type, metadata_class: type, functions: Mapping[str, Callable[..., object]]
) -> None: ...
