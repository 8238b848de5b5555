//! What Linux says of the processors: clocks, load, time stolen by a hypervisor, temperature. Elsewhere nothing. And what a GPU
//! says of itself.

use kernelproof_eval::evaluation::Telemetry;
use kernelproof_gauge::Monitor;

pub(super) fn read(monitor: Option<&Monitor>) -> Telemetry {
    let ticks = std::fs::read_to_string("/proc/stat").ok().and_then(|text| ticks(&text));
    Telemetry {
        after_calls: 0,
        clock_mhz: std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| clock_mhz(&text)),
        load: std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| first_number(&text)),
        busy_ticks: ticks.map(|(busy, _)| busy),
        stolen_ticks: ticks.map(|(_, stolen)| stolen),
        temperature_c: temperature_c(),
        gpu: monitor.map(Monitor::read),
    }
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Mean over the processors.
fn clock_mhz(text: &str) -> Option<f64> {
    let lines = text.lines().filter(|line| line.starts_with("cpu MHz"));
    let clocks: Vec<f64> = lines.filter_map(|line| line.rsplit(':').next()?.trim().parse().ok()).collect();
    (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
}

/// Busy and stolen ticks of all processors, from the first line: user nice system idle iowait irq softirq steal.
fn ticks(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> =
        text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let &[user, nice, system, _, _, irq, softirq, stolen, ..] = fields.as_slice() else { return None };
    Some((user + nice + system + irq + softirq, stolen))
}

fn temperature_c() -> Option<f64> {
    let zones = std::fs::read_dir("/sys/class/thermal").ok()?;
    let readings = zones.filter_map(|zone| std::fs::read_to_string(zone.ok()?.path().join("temp")).ok());
    readings.filter_map(|text| first_number(&text)).map(|millidegrees| millidegrees / 1000.0).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        assert_eq!(ticks("cpu  10 1 5 100 2 3 4 7 0 0\ncpu0 1"), Some((23, 7)));
        assert_eq!(ticks("intr 5"), None);
        assert_eq!(clock_mhz("cpu MHz\t\t: 2000.0\nmodel\ncpu MHz\t\t: 3000.0\n"), Some(2500.0));
        assert_eq!(clock_mhz(""), None);
        assert_eq!(first_number("0.50 0.40 0.30 1/100 5"), Some(0.5));
    }
}
