//! Medians, quartiles, and the table of results.

use std::fmt;

/// Returns the lower quartile, the median and the upper quartile.
pub fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|part| at(&sorted, part))
}

/// Returns the value at a fraction of a sorted list, interpolated between two values if it falls between them.
pub fn at(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = part * last as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - place.floor())
}

/// What must hold for the ratio of ours to the reference, or for our median.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    AtLeast(f64),
    AtMost(f64),
    /// Ours may exceed the reference by at most this.
    MoreByAtMost(f64),
}

/// One line of the table, with interleaved pairs of a reference and ours.
#[derive(Clone, Debug)]
pub struct Measure {
    pub name: String,
    pub unit: &'static str,
    pub reference: Vec<f64>,
    pub ours: Vec<f64>,
    pub goal: Goal,
}

impl Measure {
    pub fn new(name: impl Into<String>, unit: &'static str, goal: Goal) -> Measure {
        Measure { name: name.into(), unit, reference: Vec::new(), ours: Vec::new(), goal }
    }

    pub fn pair(&mut self, reference: f64, ours: f64) {
        self.reference.push(reference);
        self.ours.push(ours);
        println!("  {}: reference {reference:.1} {unit}, ours {ours:.1} {unit}", self.name, unit = self.unit);
    }

    /// Adds a value whose reference is fixed.
    pub fn single(&mut self, ours: f64) {
        self.ours.push(ours);
        println!("  {}: {ours:.1} {}", self.name, self.unit);
    }

    /// Returns the median of the pairs' ratios, or None without a reference.
    pub fn ratio(&self) -> Option<f64> {
        let ratios: Vec<f64> = self.reference.iter().zip(&self.ours).map(|(r, o)| o / r).collect();
        (!ratios.is_empty()).then(|| quartiles(&ratios)[1])
    }

    /// Returns the median of the differences between ours and the reference.
    fn more(&self) -> f64 {
        let more: Vec<f64> = self.reference.iter().zip(&self.ours).map(|(r, o)| o - r).collect();
        quartiles(&more)[1]
    }

    pub fn is_met(&self) -> bool {
        let (median, ratio) = (quartiles(&self.ours)[1], self.ratio().unwrap_or(f64::NAN));
        match self.goal {
            Goal::RatioAtLeast(limit) => ratio >= limit,
            Goal::RatioAtMost(limit) => ratio <= limit,
            Goal::AtLeast(limit) => median >= limit,
            Goal::AtMost(limit) => median <= limit,
            Goal::MoreByAtMost(limit) => self.more() <= limit,
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |values: &[f64]| match quartiles(values) {
            _ if values.is_empty() => "-".to_string(),
            [low, median, high] => format!("{median:.1} [{low:.1}, {high:.1}]"),
        };
        let goal = match self.goal {
            Goal::RatioAtLeast(limit) => format!("ratio >= {limit}"),
            Goal::RatioAtMost(limit) => format!("ratio <= {limit}"),
            Goal::AtLeast(limit) => format!(">= {limit}"),
            Goal::AtMost(limit) => format!("<= {limit}"),
            Goal::MoreByAtMost(limit) => format!("{:+.1} <= {limit}", self.more()),
        };
        write!(
            f,
            "{:<44} {:>3} {:<7} {:>34} {:>34} {:>7} {:>13}  {}",
            self.name,
            self.ours.len(),
            self.unit,
            spread(&self.reference),
            spread(&self.ours),
            self.ratio().map_or("-".into(), |ratio| format!("{ratio:.3}")),
            goal,
            if self.is_met() { "met" } else { "MISSED" }
        )
    }
}

pub fn print_table(measures: &[Measure]) {
    println!(
        "\n{:<44} {:>3} {:<7} {:>34} {:>34} {:>7} {:>13}",
        "measure", "n", "unit", "reference: median [quartiles]", "ours: median [quartiles]", "ratio", "goal"
    );
    for measure in measures {
        println!("{measure}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_few_values() {
        assert_eq!(quartiles(&[3.0, 1.0, 2.0]), [1.5, 2.0, 2.5]);
        assert_eq!(quartiles(&[4.0]), [4.0; 3]);
        assert!(quartiles(&[])[1].is_nan());
    }

    #[test]
    fn goals_look_at_the_median_ratio() {
        let mut measure = Measure::new("m", "s", Goal::RatioAtLeast(0.8));
        for (reference, ours) in [(10.0, 9.0), (10.0, 1.0), (10.0, 8.5)] {
            measure.pair(reference, ours);
        }
        assert_eq!(measure.ratio(), Some(0.85));
        assert!(measure.is_met());
        measure.goal = Goal::MoreByAtMost(-1.0);
        assert!(measure.is_met());
        measure.goal = Goal::MoreByAtMost(-2.0);
        assert!(!measure.is_met());
    }
}
