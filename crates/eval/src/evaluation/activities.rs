//! What a call made its device do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Kernels, copies and fills of one call, with how often each occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Activities(BTreeMap<String, u32>);

impl Activities {
    /// Counts activities by name.
    pub fn of(names: &[String]) -> Self {
        let mut counts = BTreeMap::new();
        for name in names {
            *counts.entry(name.clone()).or_insert(0) += 1;
        }
        Self(counts)
    }

    /// Names and counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, &count)| (name.as_str(), count))
    }

    /// In what `other` differs, in words.
    pub fn unlike(&self, other: &Self) -> String {
        let names = self.0.keys().chain(other.0.keys().filter(|name| !self.0.contains_key(*name)));
        let count = |activities: &Self, name: &String| activities.0.get(name).copied().unwrap_or(0);
        let changed = names.filter(|name| count(self, name) != count(other, name));
        let words = changed.map(|name| format!("{name} {} times instead of {}", count(other, name), count(self, name)));
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kernel_and_another_count_are_named() {
        let of = |names: &[&str]| Activities::of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["a", "b", "a"]), of(&["b", "a", "a"]));
        let words = of(&["a", "a"]).unlike(&of(&["a", "b"]));
        assert_eq!(words, "a 1 times instead of 2, b 1 times instead of 0");
    }
}
