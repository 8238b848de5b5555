//! Small pieces of pages. Askama escapes every value in them, so the pieces themselves may stand unescaped.

use askama::Template;

use super::{Interval, Maker, Standing};
use crate::display::Shown;

/// A figure that leads to how it is obtained again.
#[derive(Debug, Template)]
#[template(ext = "html", source = r#"<a class="fig" href="{{ href }}" title="{{ interval }}">{{ shown }}</a>"#)]
pub struct Linked<'a> {
    href: &'a str,
    shown: Shown,
    interval: String,
}

/// A large figure.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = r#"<a href="{{ href }}" title="{{ interval }}">{{ shown.digits }}<span class="unit"> {{ shown.unit }}</span></a>"#
)]
pub struct Large<'a> {
    href: &'a str,
    shown: Shown,
    interval: String,
}

/// A level of trust with its four steps.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = r#"<span class="trust t{{ step }}"><span class="pips" aria-hidden="true"><i></i><i></i><i></i><i></i></span>{{ level }}</span>{% if let Some(stale) = stale %} <span class="tag" title="{{ stale }}">older driver</span>{% endif %}"#
)]
pub struct Level<'a> {
    step: u8,
    level: &'a str,
    stale: Option<&'a str>,
}

/// Whether an implementation can be had.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = r#"{% if let Some(licence) = licence %}{{ licence }}{% else %}<span class="warn">licence unknown</span>{% endif %}{% for missing in missing %} · <span class="warn">{{ missing }}</span>{% endfor %}"#
)]
pub struct Available<'a> {
    licence: Option<&'a str>,
    missing: Vec<&'a str>,
}

/// A share of 1 as a bar.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = r#"<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="full" width="100" height="8"/><rect class="part" width="{{ width }}" height="8"/></svg>"#
)]
pub struct Bar {
    width: String,
}

impl Interval {
    /// This time as a link.
    pub fn time_link<'a>(&self, href: &'a str) -> Linked<'a> {
        Linked { href, shown: self.time(), interval: self.times() }
    }

    /// This time in large type.
    pub fn time_large<'a>(&self, href: &'a str) -> Large<'a> {
        Large { href, shown: self.time(), interval: self.times() }
    }

    /// This ratio as a link.
    pub fn ratio_link<'a>(&self, href: &'a str) -> Linked<'a> {
        Linked { href, shown: self.ratio(), interval: self.ratios() }
    }
}

impl Standing {
    /// The level with its steps.
    pub fn html(&self) -> Level<'_> {
        Level { step: self.step(), level: self.level, stale: self.stale.as_deref() }
    }
}

impl Maker {
    /// Licence, and what else is missing.
    pub fn availability(&self) -> Available<'_> {
        let missing = self.missing.iter().map(String::as_str).filter(|missing| *missing != "no licence");
        Available { licence: self.licence.as_deref(), missing: missing.collect() }
    }
}

/// A share of 1 as a bar.
pub fn bar(share: &f64) -> Bar {
    Bar { width: format!("{:.1}", share.clamp(0.0, 1.0) * 100.0) }
}
