from typing import Any

__version__: str

def cpu() -> str: ...
def backward(
    inputs: tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any],
    out: tuple[Any, Any, Any, Any],
    modes: tuple[int, int, int, int],
    interleaved: bool,
    precision: str,
    threads: int,
    /,
) -> tuple[Any, Any, Any, Any]: ...
