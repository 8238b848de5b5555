//! Where implementations run, and in which precision, from what the user said and what they can.

use super::Who;
use crate::args::{Device, ModeArgs};
use crate::failure::Failure;

/// The device and the mode that all of `all` share.
///
/// # Errors
/// When one does not run on the device that was asked for, or they differ: times of different devices or modes are never set
/// against each other.
pub(crate) fn place(all: &[&Who], asked: Option<Device>, mode: ModeArgs) -> Result<(Device, ModeArgs), Failure> {
    let built_in = || all.iter().find_map(|who| matches!(who, Who::Cuda(_)).then_some(Device::Cuda(0)));
    let asked = asked.or_else(built_in);
    let mut devices = Vec::new();
    for who in all {
        devices.push(who.device(asked)?);
    }
    let device = devices.first().copied().unwrap_or_default();
    if devices.iter().any(|&other| other != device) {
        return Err(Failure::input("one runs on the CPU and the other on a GPU; their times are of two cohorts"));
    }
    let mut precisions = all.iter().filter_map(|who| who.precision()).chain(mode.precision);
    let first = precisions.next();
    if precisions.any(|other| Some(other) != first) {
        let failure = Failure::input("two precisions: times of different modes are of two cohorts");
        return Err(
            failure.help("cuda-fast computes in fast and cuda-split in split; leave --precision out or name theirs")
        );
    }
    Ok((device, ModeArgs { precision: first, ..mode }.on(device)))
}

#[cfg(test)]
mod tests {
    use qkv_rope_op::Precision;

    use super::*;
    use crate::args::{PrecisionArg, StyleArg};
    use crate::evaluator::parse_who;

    fn placed(
        names: &[&str],
        asked: Option<Device>,
        precision: Option<PrecisionArg>,
    ) -> Result<(Device, Precision), String> {
        let all: Vec<Who> = names.iter().map(|name| parse_who(name).expect("it is a name")).collect();
        let mode = ModeArgs { precision, style: StyleArg::HalfSplit };
        let placed = place(&all.iter().collect::<Vec<_>>(), asked, mode);
        placed.map(|(device, mode)| (device, mode.precision())).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_mode_of_a_gpu_says_device_and_precision_for_both() {
        let gpu = Device::Cuda(0);
        assert_eq!(placed(&["cuda-fast"], None, None), Ok((gpu, Precision::Fast)));
        assert_eq!(placed(&["a.json", "cuda-split"], None, None), Ok((gpu, Precision::Split)));
        assert_eq!(placed(&["a.json"], Some(Device::Cuda(1)), None), Ok((Device::Cuda(1), Precision::Split)));
        assert_eq!(placed(&["a.json"], None, None), Ok((Device::Cpu, Precision::Ieee)));
    }

    #[test]
    fn two_devices_and_two_modes_are_refused() {
        let refused = |names: &[&str], asked, precision| placed(names, asked, precision).expect_err("they differ");
        assert_eq!(refused(&["cpu-avx2"], Some(Device::Cuda(0)), None), "cpu-avx2 does not run on a GPU");
        assert_eq!(refused(&["cuda-fast", "cpu-avx2"], None, None), "cpu-avx2 does not run on a GPU");
        assert_eq!(refused(&["cuda-fast"], Some(Device::Cpu), None), "cuda-fast does not run on the CPU");
        assert!(refused(&["cuda-fast", "cuda-split"], None, None).starts_with("two precisions"));
        assert!(refused(&["cuda-fast"], None, Some(PrecisionArg::Split)).starts_with("two precisions"));
    }
}
