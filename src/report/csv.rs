//! The CSV files: RFC 4180, `.` decimals, one fixed header each, unknown = empty. results/README.md explains columns.

use crate::record::{Flag, Interval, LatencySummary, Row, SCHEMA_VERSION};
use crate::report::aggregate::{Metric, groups};
use crate::spec::repeats::Repeats;

/// Columns of summary.csv.
pub const SUMMARY: &[&str] = &[
    "schema_version",
    "run_id",
    "started_utc",
    "stage",
    "target",
    "protocol",
    "engine",
    "workload",
    "direction",
    "pattern",
    "block_size_bytes",
    "iodepth",
    "lanes",
    "connections",
    "size_bytes",
    "repeat",
    "bytes",
    "seconds",
    "throughput_bytes_per_s",
    "iops",
    "latency_us_mean",
    "latency_us_p50",
    "latency_us_p90",
    "latency_us_p99",
    "latency_us_p999",
    "latency_us_max",
    "flush_seconds",
    "durable_bytes_per_s",
    "ops",
    "wire_ops",
    "errors",
    "payload",
    "cache_state",
    "durability",
    "generator_bytes_per_s",
    "burst_bytes_per_s",
    "bytes_to_cliff",
    "sustained_bytes_per_s",
    "client_cpu_s_per_gb",
    "busiest_core_percent",
    "network_bytes",
    "device_bytes",
    "retransmits",
    "negotiated",
    "status",
    "flags",
    "busiest_core",
    "busiest_core_softirq_percent",
    "steal_percent",
    "throttled_periods",
];

/// Columns of intervals.csv.
pub const INTERVALS: &[&str] = &[
    "schema_version",
    "run_id",
    "stage",
    "target",
    "workload",
    "direction",
    "repeat",
    "from_seconds",
    "to_seconds",
    "ops",
    "bytes",
    "throughput_bytes_per_s",
    "iops",
    "latency_us_mean",
    "latency_us_max",
];

/// Columns of latency.csv: one line for each filled bucket of each row's histogram.
pub const LATENCY: &[&str] = &[
    "schema_version",
    "run_id",
    "stage",
    "target",
    "workload",
    "direction",
    "repeat",
    "latency_ns_low",
    "latency_ns_high",
    "count",
];

/// Columns of aggregate.csv: one line for each cell and metric.
pub const AGGREGATE: &[&str] = &[
    "schema_version",
    "run_id",
    "stage",
    "target",
    "protocol",
    "engine",
    "workload",
    "direction",
    "metric",
    "n",
    "mean",
    "ci95_low",
    "ci95_high",
    "failed",
    "flags",
];

fn whole<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn decimal(value: Option<f64>, places: usize) -> String {
    value
        .filter(|value| value.is_finite())
        .map_or_else(String::new, |value| format!("{value:.places$}"))
}

fn keys(flags: &[Flag]) -> String {
    let keys: Vec<&str> = flags.iter().map(|flag| flag.key()).collect();
    keys.join(";")
}

fn micros(nanos: Option<f64>) -> String {
    decimal(nanos.map(|nanos| nanos / 1e3), 3)
}

/// One line of summary.csv, in the order of [`SUMMARY`].
#[must_use]
pub fn summary(row: &Row) -> Vec<String> {
    let LatencySummary {
        mean,
        p50,
        p90,
        p99,
        p999,
        max,
    } = row.latency_ns;
    let point = |nanos: Option<u64>| micros(nanos.map(|nanos| nanos as f64));
    vec![
        SCHEMA_VERSION.to_string(),
        row.run_id.clone(),
        row.started_utc.clone(),
        row.stage.clone(),
        row.target.clone(),
        row.protocol.clone(),
        row.engine.clone(),
        row.workload.clone(),
        row.direction.clone(),
        row.pattern.clone(),
        whole(row.block_size_bytes),
        whole(Some(row.iodepth).filter(|depth| *depth > 0)),
        whole(Some(row.lanes).filter(|lanes| *lanes > 0)),
        whole(row.connections),
        whole(Some(row.size_bytes).filter(|size| !row.is_stream() && *size > 0)),
        row.repeat.to_string(),
        row.bytes.to_string(),
        decimal(row.seconds, 9),
        decimal(row.throughput().map(|rate| rate.0), 1),
        decimal(row.iops(), 2),
        micros(mean),
        point(p50),
        point(p90),
        point(p99),
        point(p999),
        point(max),
        decimal(row.flush_seconds, 9),
        decimal(row.durable().map(|rate| rate.0), 1),
        whole(Some(row.ops).filter(|_| !row.is_stream())),
        whole(row.wire_ops),
        row.errors.to_string(),
        row.payload.clone(),
        whole(row.cache_state.clone()),
        whole(row.durability.clone()),
        decimal(row.generator_bytes_per_s, 0),
        decimal(row.burst.map(|burst| burst.bytes_per_s), 1),
        whole(row.burst.map(|burst| burst.bytes)),
        decimal(row.burst.map(|burst| burst.sustained_bytes_per_s), 1),
        decimal(row.client_cpu_s_per_gb(), 4),
        decimal(row.busiest_core_percent, 1),
        whole(row.network_bytes),
        whole(row.device_bytes),
        whole(row.retransmits),
        row.negotiated.clone(),
        row.status.key().to_owned(),
        keys(&row.flags),
        whole(row.host.busiest_core),
        decimal(row.host.busiest_core_softirq_percent, 1),
        decimal(row.host.steal_percent, 1),
        whole(row.host.throttled_periods),
    ]
}

/// What identifies a row in the files beside summary.csv.
fn place(row: &Row) -> Vec<String> {
    [
        SCHEMA_VERSION.to_string().as_str(),
        &row.run_id,
        &row.stage,
        &row.target,
        &row.workload,
        &row.direction,
        &row.repeat.to_string(),
    ]
    .map(str::to_owned)
    .into()
}

/// One line of intervals.csv. `row` gives its place only.
#[must_use]
pub fn interval(row: &Row, interval: &Interval) -> Vec<String> {
    let span = interval.to.0.saturating_sub(interval.from.0) as f64 / 1e9;
    let per_second = |count: u64| (span > 0.0).then(|| count as f64 / span);
    let mut line = place(row);
    line.extend([
        decimal(Some(interval.from.seconds()), 6),
        decimal(Some(interval.to.seconds()), 6),
        whole(Some(interval.ops).filter(|_| !row.is_stream())),
        interval.bytes.to_string(),
        decimal(per_second(interval.bytes), 1),
        decimal(per_second(interval.ops).filter(|_| !row.is_stream()), 2),
        micros(interval.latency_mean_ns),
        micros(interval.latency_max_ns.map(|nanos| nanos as f64)),
    ]);
    line
}

/// The lines of latency.csv for one row. Buckets of two significant digits: a file a tenth as large, whose merged
/// percentiles are within 1 %.
#[must_use]
pub fn latency(row: &Row) -> Vec<Vec<String>> {
    let coarse = crate::stats::coarse(&row.latency);
    let buckets = coarse.iter_recorded().map(|bucket| {
        let value = bucket.value_iterated_to();
        let mut line = place(row);
        line.extend([
            coarse.lowest_equivalent(value).to_string(),
            coarse.highest_equivalent(value).to_string(),
            bucket.count_at_value().to_string(),
        ]);
        line
    });
    buckets.collect()
}

/// All lines of aggregate.csv: mean and 95 % interval of each figure of each cell over its repeats that are ok. `repeats`
/// is how their number was chosen.
#[must_use]
pub fn aggregates(rows: &[Row], repeats: Repeats) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for group in groups(rows) {
        let first = group.rows[0];
        let figures = Metric::ALL.map(|metric| group.aggregate(metric, repeats));
        for figure in figures.into_iter().flatten() {
            let places = match figure.metric {
                Metric::Throughput | Metric::Durable => 1,
                Metric::Iops | Metric::Files => 2,
                Metric::Latency => 3,
            };
            let interval = figure.mean.interval;
            lines.push(vec![
                SCHEMA_VERSION.to_string(),
                first.run_id.clone(),
                first.stage.clone(),
                first.target.clone(),
                first.protocol.clone(),
                first.engine.clone(),
                first.workload.clone(),
                first.direction.clone(),
                figure.metric.key().to_owned(),
                figure.mean.n.to_string(),
                decimal(Some(figure.mean.mean), places),
                decimal(interval.map(|interval| interval.0), places),
                decimal(interval.map(|interval| interval.1), places),
                group.failed().to_string(),
                keys(&figure.flags()),
            ]);
        }
    }
    lines
}

/// A line as RFC 4180 bytes.
#[must_use]
pub fn line<S: AsRef<[u8]>>(fields: &[S]) -> Vec<u8> {
    let mut writer = ::csv::WriterBuilder::new()
        .terminator(::csv::Terminator::CRLF)
        .from_writer(Vec::new());
    // Writing to a Vec can't fail.
    let _ = writer.write_record(fields);
    writer.into_inner().unwrap_or_default()
}
