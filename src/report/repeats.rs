//! Repeats in sentences: what each cell came to, how well that is known, and whether it rose or fell meanwhile.

use super::aggregate::{Aggregate, Group, Metric, groups};
use super::table::{label, wrap};
use crate::record::{Flag, Row};
use crate::spec::repeats::Repeats;
use crate::stats::sequential::NARROW;
use crate::units::Rate;

/// Characters of a line.
const WIDTH: usize = 78;

/// A sentence for each cell; nothing when no cell was repeated. `repeats` is how their number was chosen.
#[must_use]
pub fn sentences(rows: &[Row], repeats: Repeats) -> String {
    let groups = groups(rows);
    if groups.iter().all(|group| group.rows.len() < 2) {
        return String::new();
    }
    let mut text = String::from("\nRepeats, mean and 95 % interval\n");
    let mut trends = String::new();
    for group in &groups {
        let first = group.rows[0];
        let cell = format!(
            "{} {} on {}",
            first.workload,
            first.direction,
            label(rows, first)
        );
        let figures: Vec<Aggregate> = Metric::RATES
            .into_iter()
            .filter_map(|metric| group.aggregate(metric, repeats))
            .collect();
        text.push_str(&wrap(
            &format!("{cell}: {}", known(group, &figures, repeats)),
            WIDTH,
        ));
        let moved = figures
            .iter()
            .find_map(|figure| Some((figure, figure.trend?)));
        if let Some((figure, change)) = moved {
            let sentence = format!(
                "{}: {cell} {}{} {:.0} % over {} repeats: {}",
                Flag::Trend.key(),
                if figure.metric == Metric::Durable {
                    "(durable) "
                } else {
                    ""
                },
                if change < 0.0 { "fell" } else { "rose" },
                change.abs() * 100.0,
                figure.mean.n,
                Flag::Trend.advice()
            );
            trends.push_str(&wrap(&sentence, WIDTH));
        }
    }
    text + &trends
}

/// How well a cell is known.
fn known(group: &Group<'_>, figures: &[Aggregate], repeats: Repeats) -> String {
    let failed = match group.failed() {
        0 => String::new(),
        failed => format!(", {failed} more failed"),
    };
    // A cell without bytes has operations still.
    let main = |figure: &&Aggregate| matches!(figure.metric, Metric::Throughput | Metric::Iops);
    let Some(figure) = figures.iter().find(main) else {
        return format!("none of {} repeats is ok", group.rows.len());
    };
    let mean = &figure.mean;
    let value = if figure.metric == Metric::Iops {
        format!("{:.0} IOPS", mean.mean)
    } else {
        format!("{:.1} MB/s", Rate(mean.mean).megabytes())
    };
    let within = mean.within();
    let spread = within.map_or_else(
        || ", no interval".to_owned(),
        |within| format!(" +- {:.1} %", within * 100.0),
    );
    // `auto` promises a width; where the limit of repeats came first, the reader must know.
    let wide = |figure: &Aggregate| figure.mean.within().is_none_or(|within| within > NARROW);
    let unsteady = match repeats {
        Repeats::Auto if figures.iter().any(wide) => {
            format!(", not within {:.0} % after them", NARROW * 100.0)
        }
        _ => String::new(),
    };
    format!("{value}{spread} over {}{failed}{unsteady}", mean.n)
}
