//! ifstat's table: two rates of each interface, one row a second.
//!
//! Pure. Must not know: other lines.

use crate::recompute::quantity::{Quantity, Span};
use crate::recompute::reading::Reading;
use crate::recompute::text::Token;
use crate::recompute::tools::IFSTAT;
use crate::recompute::units::{self, Unit};

/// A table that is being read.
#[derive(Debug)]
pub(super) struct Table {
    line: usize,
    unit: Unit,
    columns: Vec<String>,
    rows: Vec<Vec<f64>>,
}

/// Its head: the unit, and the names from the line above.
pub(super) fn header(line: usize, text: &str, above: &str, tokens: &[Token]) -> Option<Table> {
    let words: Vec<&str> = tokens.iter().filter_map(Token::word).collect();
    let count = |wanted: &str| words.iter().filter(|word| **word == wanted).count();
    let pairs = count("in");
    if pairs == 0
        || count("out") != pairs
        || !(text.contains("KB/s in") || text.contains("Kbps in"))
    {
        return None;
    }
    let unit = words.iter().find_map(|word| units::amount(word))?;
    let names: Vec<&str> = above.split_whitespace().collect();
    let skipped = names.len().saturating_sub(pairs);
    let columns = (0..pairs).flat_map(|pair| {
        let name = names.get(skipped + pair).copied().unwrap_or("");
        [format!("{name} in"), format!("{name} out")]
    });
    Some(Table {
        line,
        unit,
        columns: columns.collect(),
        rows: Vec::new(),
    })
}

impl Table {
    /// Takes a row, as many bare numbers as there are columns; the time of the day may stand in front.
    pub(super) fn row(&mut self, tokens: &[Token]) -> bool {
        let tokens = match tokens {
            [first, rest @ ..] if first.clock().is_some() => rest,
            all => all,
        };
        let numbers: Vec<f64> = tokens
            .iter()
            .filter_map(Token::number)
            .map(|number| number.value)
            .collect();
        let fits = numbers.len() == self.columns.len() && numbers.len() == tokens.len();
        if fits {
            self.rows.push(numbers);
        }
        fits
    }

    /// Its columns: the mean over the rows.
    pub(super) fn readings(self) -> Vec<Reading> {
        let rows = self.rows.len() as f64;
        let columns = self.columns.into_iter().enumerate();
        let readings = columns.filter_map(|(at, column)| {
            let values = self.rows.iter().map(|row| row[at]);
            let mean = values.clone().sum::<f64>() / rows;
            let least = values.clone().fold(f64::MAX, f64::min);
            let most = values.fold(0f64, f64::max);
            (most > 0.0).then(|| Reading {
                line: self.line,
                text: format!("{}: {rows} rows", column.trim()),
                tool: Some(&IFSTAT),
                label: Some(column.trim().to_owned()),
                rates: vec![Quantity {
                    printed: format!("{mean:.2}"),
                    number: Span::around(mean, 0.005),
                    loose: 0.005,
                    unit: self.unit,
                    either: false,
                    range: false,
                }],
                notes: vec![format!("the mean of {rows} rows, from {least} to {most}")],
                ..Reading::default()
            })
        });
        readings.collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::recompute::number::Writing;
    use crate::recompute::session::read;

    #[test]
    fn a_table_is_read_by_column() {
        let texts = [
            "        lo        \n KB/s in  KB/s out\n2.58e+06  2.58e+06\n1.66e+06  1.66e+06\n",
            "  Time           lo        \nHH:MM:SS   KB/s in  KB/s out\n10:00:01  2.58e+06  2.58e+06\n10:00:02  1.66e+06  1.66e+06\n",
        ];
        for text in texts {
            let found = read(text, Writing::default()).expect("readable").readings;
            assert_eq!(found.len(), 2, "{text}");
            assert_eq!(found[0].label.as_deref(), Some("lo in"));
            assert!((found[0].rates[0].number.best / 2.12e6 - 1.0).abs() < 1e-9);
        }
    }
}
