from typing import Any, Optional

__version__: str

def cpu() -> str: ...
def gpu(ordinal: int = 0, /) -> str: ...

class Buffer:
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any: ...

def backward(
    inputs: tuple[Any, ...],
    out: tuple[Any, ...],
    modes: tuple[int, int, int, int],
    interleaved: bool,
    precision: str,
    threads: int,
    /,
) -> tuple[Any, Any, Any, Any]: ...
