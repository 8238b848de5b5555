//! The elements of an SVG document. All text that comes from outside goes through [`escape`].

use std::fmt::Write as _;

/// An SVG document that grows.
pub(super) struct Canvas {
    body: String,
}

/// Where a text hangs on its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

impl Canvas {
    /// An empty picture with its accessible name; `id` must be unique on the page.
    pub(super) fn new(id: &str, width: f64, height: f64, title: &str, description: &str) -> Self {
        let body = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" \
             role=\"img\" aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            place(width),
            place(height),
            place(width),
            place(height),
            escape(title),
            escape(description)
        );
        Self { body }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (place(from.0), place(from.1), place(to.0), place(to.1));
        let _ = write!(self.body, "<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>");
    }

    /// A line through all points.
    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{} {}", if index == 0 { 'M' } else { 'L' }, place(*x), place(*y));
        }
        let _ = write!(self.body, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    /// Many equal dots as one element: segments without length, which round caps make dots.
    pub(super) fn dots(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "M{} {}h0", place(x), place(y));
        }
        if !path.is_empty() {
            let _ = write!(self.body, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }

    /// One dot that says what it is when pointed at.
    pub(super) fn marker(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        let (x, y, r) = (place(at.0), place(at.1), place(radius));
        let title = escape(title);
        let _ = write!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\"><title>{title}</title></circle>"
        );
    }

    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), width: f64, height: f64) {
        let (x, y, w, h) = (place(at.0), place(at.1), place(width.max(0.0)), place(height.max(0.0)));
        let _ = write!(self.body, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/>");
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let (x, y) = (place(at.0), place(at.1));
        let anchor = anchor.name();
        let text = escape(text);
        let _ = write!(self.body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    pub(super) fn finish(mut self) -> String {
        self.body.push_str("</svg>");
        self.body
    }
}

/// A coordinate with one decimal at most.
pub(super) fn place(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// `text` as it may stand in XML content and attributes. What XML forbids becomes U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        let mut canvas = Canvas::new("x", 10.0, 10.0, "<script>", "\"&'");
        canvas.text("label", (1.0, 2.25), Anchor::End, "</text><script>alert(1)</script>\u{1}");
        let svg = canvas.finish();
        assert!(!svg.contains("<script>"), "{svg}");
        assert!(svg.contains("&quot;&amp;&#39;") && svg.contains('\u{fffd}') && svg.contains("y=\"2.2\""), "{svg}");
    }
}
