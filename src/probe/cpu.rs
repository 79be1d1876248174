//! How busy each core was, from /proc/stat. Total CPU hides a full core, so the busiest one is told.

/// Busy and total clock ticks of each core since boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticks(Vec<(u64, u64)>);

/// The ticks of all cores now; None where /proc/stat is not readable.
#[must_use]
pub fn ticks() -> Option<Ticks> {
    std::fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|text| Ticks::parse(&text))
}

impl Ticks {
    /// Reads /proc/stat's text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut cores = Vec::new();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("cpu") else {
                continue;
            };
            let mut fields = rest.split_whitespace();
            // The line without a number is the sum of all.
            if rest.starts_with(' ') || fields.next().is_none() {
                continue;
            }
            // user nice system idle iowait irq softirq steal; guest time is within user.
            let ticks: Vec<u64> = fields
                .take(8)
                .filter_map(|field| field.parse().ok())
                .collect();
            let total: u64 = ticks.iter().sum();
            let idle = ticks.get(3).unwrap_or(&0) + ticks.get(4).unwrap_or(&0);
            cores.push((total - idle, total));
        }
        (!cores.is_empty()).then_some(Self(cores))
    }

    /// The busiest core between two readings, 0 to 100; None when no tick passed.
    #[must_use]
    pub fn busiest_since(&self, before: &Self) -> Option<f64> {
        let shares = self.0.iter().zip(&before.0).filter_map(|(now, then)| {
            let total = now.1.checked_sub(then.1).filter(|total| *total > 0)?;
            Some(now.0.saturating_sub(then.0) as f64 * 100.0 / total as f64)
        });
        shares.reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  30 0 30 140 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\ncpu1 20 0 20 60 0 0 0 0 0 0\nintr 1\n";
    const AFTER: &str = "cpu  120 0 40 240 0 0 0 0 0 0\ncpu0 95 0 15 90 0 0 0 0 0 0\ncpu1 25 0 25 150 0 0 0 0 0 0\nintr 2\n";

    #[test]
    fn the_busiest_core_is_told_not_the_mean() {
        let (before, after) = (
            Ticks::parse(BEFORE).expect("text"),
            Ticks::parse(AFTER).expect("text"),
        );
        assert_eq!(after.busiest_since(&before), Some(90.0));
        assert_eq!(before.busiest_since(&before), None, "no tick passed");
        assert_eq!(Ticks::parse("nothing"), None);
    }
}
