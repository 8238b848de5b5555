//! From activity records to the time of a call. Pure, so that it is tested without a GPU.

use crate::error::Error;

/// What the device did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ran a kernel.
    Kernel,
    /// Copied memory.
    Copy,
    /// Filled memory.
    Fill,
}

/// One thing that the device did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Of which kind.
    pub kind: Kind,
    /// The kernel's name, or the direction of a copy.
    pub name: String,
    /// Bytes copied or filled; 0 for kernels.
    pub bytes: u64,
    /// First nanosecond, on the device's clock.
    pub start_ns: u64,
    /// Last nanosecond.
    pub end_ns: u64,
}

impl Activity {
    /// The name by which calls are compared: what was done, not when.
    pub fn what(&self) -> String {
        match self.kind {
            Kind::Kernel => self.name.clone(),
            Kind::Copy => format!("copy of {} bytes {}", self.bytes, self.name),
            Kind::Fill => format!("fill of {} bytes", self.bytes),
        }
    }
}

/// Nanoseconds from the first to the last activity of a call, and all of them by name. `records` are those of
/// the fills that empty the caches, so many of so many bytes, and of the call put on the stream after them.
///
/// # Errors
/// [`Error::Records`] when the fills are not all there, when nothing else was recorded, or when a record has no time.
pub(crate) fn of_call(records: &[Activity], (fills, flush_bytes): (usize, u64)) -> Result<(u64, Vec<String>), Error> {
    let wrong = |why: String| Error::Records { why };
    let is_flush = |activity: &&Activity| activity.kind == Kind::Fill && activity.bytes == flush_bytes;
    let flushes = records.iter().filter(is_flush).count();
    if flushes != fills {
        return Err(wrong(format!(
            "found {flushes} fills of {flush_bytes} bytes, expected the {fills} before the call"
        )));
    }
    let call: Vec<&Activity> = records.iter().filter(|activity| !is_flush(activity)).collect();
    if let Some(untimed) = call.iter().find(|activity| activity.start_ns == 0 || activity.end_ns < activity.start_ns) {
        return Err(wrong(format!("{} has no time", untimed.what())));
    }
    let start_ns = call.iter().map(|activity| activity.start_ns).min();
    let end_ns = call.iter().map(|activity| activity.end_ns).max();
    match (start_ns, end_ns) {
        (Some(start_ns), Some(end_ns)) => {
            Ok((end_ns - start_ns, call.iter().map(|activity| activity.what()).collect()))
        }
        _ => Err(wrong("the call did nothing".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(kind: Kind, name: &str, bytes: u64, start_ns: u64, end_ns: u64) -> Activity {
        Activity { kind, name: name.to_owned(), bytes, start_ns, end_ns }
    }

    #[test]
    fn a_call_lasts_from_its_first_to_its_last_activity_on_any_stream() {
        let records = [
            activity(Kind::Kernel, "product", 0, 250, 400),
            activity(Kind::Fill, "", 64, 100, 199),
            activity(Kind::Kernel, "prep", 0, 200, 245),
            activity(Kind::Copy, "DtoD", 8, 390, 450),
        ];
        let (time_ns, names) = of_call(&records, (1, 64)).expect("it is a call");
        assert_eq!((time_ns, names), (250, ["product", "prep", "copy of 8 bytes DtoD"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn what_began_during_the_flush_counts() {
        let records = [activity(Kind::Fill, "", 64, 100, 199), activity(Kind::Kernel, "early", 0, 150, 300)];
        assert_eq!(of_call(&records, (1, 64)).expect("it is a call").0, 150);
    }

    #[test]
    fn records_that_show_no_call_are_refused() {
        let flush = activity(Kind::Fill, "", 64, 100, 199);
        let why = |records: &[Activity]| of_call(records, (1, 64)).expect_err("it is no call").to_string();
        assert!(why(std::slice::from_ref(&flush)).contains("did nothing"));
        assert!(why(&[activity(Kind::Kernel, "k", 0, 1, 2)]).contains("found 0 fills"));
        assert!(why(&[flush.clone(), flush.clone()]).contains("found 2 fills"));
        assert!(why(&[flush, activity(Kind::Kernel, "lost", 0, 7, 0)]).contains("lost has no time"));
    }
}
