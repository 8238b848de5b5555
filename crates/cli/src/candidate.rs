//! Who is judged: a backend of this program, or a solution in a file.

#[cfg(target_os = "linux")]
mod external;
#[cfg(target_os = "linux")]
mod shared;
mod solution;

#[cfg(target_os = "linux")]
pub(crate) use external::{External, GpuClock, Limits};
pub(crate) use solution::Solution;
