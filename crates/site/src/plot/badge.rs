//! Badges: two words in two boxes, for the README of an implementation. They stand alone, so they bring their colours.

use super::canvas::{escape, place};

/// A letter of the badge's type is about this wide.
const LETTER_WIDTH: f64 = 6.6;
const PADDING: f64 = 8.0;
const LONGEST: usize = 60;

/// A badge that says `value` of `label`.
pub fn badge(label: &str, value: &str) -> String {
    let cut = |text: &str| text.chars().take(LONGEST).collect::<String>();
    let (label, value) = (cut(label), cut(value));
    let width = |text: &str| text.chars().count() as f64 * LETTER_WIDTH + 2.0 * PADDING;
    let (left, right) = (width(&label), width(&value));
    let text = |at: f64, text: &str| format!("<text x=\"{}\" y=\"14\">{}</text>", place(at), escape(text));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{total}\" height=\"20\" role=\"img\" aria-label=\"{name}\">\
         <title>{name}</title>\
         <rect width=\"{total}\" height=\"20\" rx=\"3\" fill=\"#2b2b29\"/>\
         <path d=\"M{left} 0h{flat}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{flat}z\" fill=\"#0b5c6b\"/>\
         <g fill=\"#fff\" text-anchor=\"middle\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\">{a}{b}</g></svg>",
        total = place(left + right),
        left = place(left),
        flat = place(right - 3.0),
        name = escape(&format!("{label}: {value}")),
        a = text(left / 2.0, &label),
        b = text(left + right / 2.0, &value),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_is_short_and_carries_no_markup_from_outside() {
        let svg = badge("qkv-rope \"on\" <AMD>", &"x".repeat(1000));
        assert!(svg.len() < 1500 && svg.contains("&lt;AMD&gt;") && svg.contains("&quot;on&quot;"), "{svg}");
    }
}
