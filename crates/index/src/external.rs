//! External runs: figures that someone else reports, in that one's own words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::manifest::{Invalid, Spec};

/// A figure from another source. It is stored as found and never set against a figure of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalRun {
    /// Identity of the operation.
    pub operation: Digest,
    /// Where the figures stand.
    pub source: Reference,
    /// The source's name of the implementation.
    pub implementation: String,
    /// The source's name of the hardware.
    pub hardware: String,
    /// The source's name of the workload.
    pub workload: String,
    /// The source's name of the protocol.
    pub protocol: String,
    /// When the source says that it was measured, as it writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<String>,
    /// What it reports.
    pub figures: Vec<Figure>,
    /// What is known to be called by a wrong name, or missing.
    pub caveats: Vec<String>,
}

/// A document and the day on which it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Its title or address.
    pub document: String,
    /// Day on which it was read, as YYYY-MM-DD.
    pub read_on: String,
}

/// One figure as the source gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The source's name of it.
    pub name: String,
    /// The source's own digits and unit.
    pub text: String,
    /// The same in the unit that this project stores; `None` where it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// That unit: `ns`, `share` or the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The variable axes of the case that it is of; empty for the whole workload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub axes: BTreeMap<String, u64>,
}

impl ExternalRun {
    /// The time of the whole workload, in ns, that the run is ranked by inside its source: the first one that the source gives,
    /// otherwise the geometric mean over cases of the figure that is listed first. `None` where there is none above 0, or a
    /// case has a status instead of a time.
    pub fn time_ns(&self) -> Option<f64> {
        let is_time = |figure: &&Figure| figure.unit.as_deref() == Some("ns");
        let whole = self.figures.iter().filter(is_time).find(|figure| figure.axes.is_empty());
        if let Some(whole) = whole {
            return whole.value.filter(|time| *time > 0.0);
        }
        let first = &self.figures.iter().find(is_time)?.name;
        let times = self.figures.iter().filter(is_time).filter(|figure| figure.name == *first);
        let times: Vec<f64> = times.filter_map(|figure| figure.value).collect();
        let failed = self.figures.iter().any(|figure| figure.name == "status");
        if failed { None } else { kernelproof_eval::statistics::geometric_mean(&times) }
    }
}

impl Spec for ExternalRun {
    const KIND: &'static str = "ExternalRun";

    fn validate(&self) -> Result<(), Invalid> {
        let texts = [
            ("source.document", &self.source.document),
            ("implementation", &self.implementation),
            ("hardware", &self.hardware),
            ("workload", &self.workload),
            ("protocol", &self.protocol),
        ];
        texts.into_iter().try_for_each(|(field, text)| Invalid::unless_text(field, text))?;
        let day = &self.source.read_on;
        Invalid::unless(day.parse::<jiff::civil::Date>().is_ok(), "source.read_on", day, "a day as YYYY-MM-DD")?;
        Invalid::unless(!self.figures.is_empty(), "figures", "none", "at least one")?;
        for Figure { name, value, unit, .. } in &self.figures {
            let agrees = value.is_some() == unit.is_some();
            Invalid::unless(agrees, format!("figures.{name}"), "a value or a unit alone", "both or neither")?;
            Invalid::unless(
                value.is_none_or(|value| value >= 0.0),
                format!("figures.{name}"),
                "a negative",
                "0 or more",
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    fn example() -> ExternalRun {
        ExternalRun {
            operation: Digest::of(b"operation"),
            source: Reference { document: "a public page".to_owned(), read_on: "2026-12-01".to_owned() },
            implementation: "Someone \u{1f600}".to_owned(),
            hardware: "NVIDIA B200 · env 1".to_owned(),
            workload: "suite of 16 cases · mean latency".to_owned(),
            protocol: "evaluation stack v1.1".to_owned(),
            observed: Some("2026-07-10".to_owned()),
            figures: vec![Figure {
                name: "mean".to_owned(),
                text: "81.9µs".to_owned(),
                value: Some(81_900.0),
                unit: Some("ns".to_owned()),
                axes: BTreeMap::new(),
            }],
            caveats: vec!["the mean is a geometric one".to_owned()],
        }
    }

    #[test]
    fn it_survives_its_text() {
        let manifest = Manifest::new(example());
        let text = manifest.text().expect("it is JSON");
        assert_eq!(Manifest::parse(text.as_bytes()).expect("it is an external run"), manifest);
    }

    #[test]
    fn a_number_smuggled_in_as_a_text_and_a_wrong_day_are_refused() {
        let text = Manifest::new(example()).text().expect("it is JSON");
        let parse =
            |text: String| Manifest::<ExternalRun>::parse(text.as_bytes()).expect_err("it is wrong").to_string();
        let error = parse(text.replace("81900.0", "\"NaN\""));
        assert!(error.starts_with("spec.figures[0].value: invalid type: string \"NaN\""), "{error}");
        assert!(parse(text.replace("2026-12-01", "2026-13-01")).contains("spec.source.read_on"));
        assert!(parse(text.replace("81900.0", "-1.0")).contains("expected 0 or more"));
    }
}
