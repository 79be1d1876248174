//! `nasgauge net`: what TCP carries to a server and back.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::run::{read, stop_on_signals};
use super::{Format, Global};
use crate::error::Result;
use crate::network::{Way, limits};
use crate::record::{Row, Status};
use crate::report::network::{self as words, InterfaceRate};
use crate::run::Out;
use crate::run::network::{NetworkOutcome, NetworkWatch, run};
use crate::spec::network::{Host, NETWORK_PLAN_VERSION, NetworkPlan, Ways};
use crate::stage::network::{Ground, Server};
use crate::units::{Bytes, Nanos};

/// Arguments of `net`.
#[derive(Debug, Args)]
pub(super) struct NetArgs {
    /// A server on which 'iperf3 -s' runs, or several that are tested together: HOST[:PORT][,HOST..]
    #[arg(value_name = "HOST[:PORT]", required = true, value_delimiter = ',')]
    hosts: Vec<String>,
    /// Port where none is named
    #[arg(long, short, default_value_t = crate::spec::network::PORT)]
    port: u16,
    /// Numbers of TCP connections, one test each; without it 1, 2, 4, 8 and on while more carry more
    #[arg(
        long,
        short = 'P',
        visible_alias = "parallel",
        value_name = "N,..",
        value_delimiter = ','
    )]
    streams: Vec<u32>,
    /// 'both': one way after the other; 'bidir': both at once; without it, both and then bidir
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// The same as --direction receive
    #[arg(long, short = 'R', conflicts_with_all = ["direction", "bidir"])]
    reverse: bool,
    /// The same as --direction bidir
    #[arg(long, conflicts_with = "direction")]
    bidir: bool,
    /// Measured time of each test, in whole seconds
    #[arg(
        long,
        short = 't',
        visible_alias = "time",
        value_name = "TIME",
        default_value = "5s"
    )]
    runtime: Nanos,
    /// Time that is left out before it; without it, twice the time of TCP's slow start, at least 1 s
    #[arg(long, short = 'O', value_name = "TIME")]
    omit: Option<Nanos>,
    /// Spacing of samples
    #[arg(long, short, value_name = "TIME", default_value = "1s")]
    interval: Nanos,
    /// Bytes of each call to the kernel
    #[arg(long, short, value_name = "SIZE", default_value = "128KiB")]
    length: Bytes,
    /// Buffer of each socket; without it the kernel sizes it, as storage protocols have it
    #[arg(long, short, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Congestion control of what this PC sends; without it the kernel's
    #[arg(long, short = 'C', visible_alias = "congestion", value_name = "NAME")]
    congestion_control: Option<String>,
    /// Cores of this PC for the test, such as 0,2
    #[arg(
        long,
        short = 'A',
        visible_alias = "affinity",
        value_name = "N,..",
        value_delimiter = ','
    )]
    cores: Vec<usize>,
    /// Local address to send from
    #[arg(long, short = 'B', value_name = "ADDRESS")]
    bind: Option<String>,
    /// Longest wait for a connection
    #[arg(long, value_name = "TIME", default_value = "5s")]
    connect_timeout: Nanos,
    /// A command whose input and output reach 'nasgauge agent' on the server, or ssh:[USER@]HOST to send one there: it
    /// serves the tests, tells how busy the server is, and answers requests of a storage protocol's size
    #[arg(long, value_name = "CMD")]
    agent: Option<String>,
    /// Leave out the requests and answers that an agent makes possible
    #[arg(long, requires = "agent")]
    no_round_trip: bool,
    /// The result directory; without it, a new one in ./results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Which ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Direction {
    Send,
    Receive,
    Both,
    Bidir,
}

/// The command.
pub(super) fn main(args: &NetArgs, global: &Global) -> Result<u8> {
    let plan = plan_of(args)?;
    plan.validate()?;
    conduct(&plan, args.out.clone(), global)
}

fn plan_of(args: &NetArgs) -> Result<NetworkPlan> {
    let mut hosts = Vec::new();
    for text in &args.hosts {
        let mut host = Host::parse(text.trim())?;
        if !names_a_port(text) {
            host.port = args.port;
        }
        hosts.push(host);
    }
    let ways = match (args.direction, args.reverse, args.bidir) {
        (Some(Direction::Send), ..) => Ways::Send,
        (Some(Direction::Receive), ..) | (None, true, _) => Ways::Receive,
        (Some(Direction::Both), ..) => Ways::Both,
        (Some(Direction::Bidir), ..) | (None, _, true) => Ways::Bidir,
        (None, false, false) => Ways::All,
    };
    Ok(NetworkPlan {
        network_plan_version: NETWORK_PLAN_VERSION,
        nasgauge_version: env!("CARGO_PKG_VERSION").into(),
        hosts,
        flows: args.streams.clone(),
        ways,
        runtime: args.runtime,
        warm_up: args.omit,
        interval: args.interval,
        block: args.length.0,
        cores: args.cores.clone(),
        congestion_control: args.congestion_control.clone(),
        window: args.window.map(|window| window.0),
        bind: args.bind.clone(),
        connect_timeout: args.connect_timeout,
        agent: args.agent.clone(),
        round_trip: !args.no_round_trip,
    })
}

fn names_a_port(text: &str) -> bool {
    match text.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => text.matches(':').count() == 1,
    }
}

/// Runs a plan, shows it, and gives the exit code.
pub(super) fn conduct(plan: &NetworkPlan, out: Option<PathBuf>, global: &Global) -> Result<u8> {
    let out = out.map_or_else(|| Out::Below("results".into()), Out::Exactly);
    let stop = stop_on_signals()?;
    let mut show = Show::new(global.quiet);
    let outcome = run(plan, &out, &stop, &mut show)?;
    drop(show);
    match global.format {
        Format::Table => print!("{}", table(plan, &outcome)),
        Format::Csv => print!("{}", read(&outcome.directory.join("summary.csv"))?),
        Format::Json => println!("{}", read(&outcome.directory.join("record.json"))?),
    }
    Ok(outcome.exit_code())
}

fn table(plan: &NetworkPlan, outcome: &NetworkOutcome) -> String {
    let mut text = String::new();
    for (server, ground) in &outcome.servers {
        text.push_str(&format!("\n{}\n", place(server, ground)));
    }
    if let Some(tested) = outcome.tests.first() {
        text.push_str(&format!(
            "each test: {} s left out ({}), then {} measured; bytes as the receiver counts them\n",
            tested.warm_up_s,
            if plan.warm_up.is_some() {
                "as asked"
            } else {
                "TCP's slow start"
            },
            plan.runtime
        ));
    }
    text.push_str(&words::rows(&outcome.rows));
    for tested in &outcome.tests {
        for way in [Way::Receive, Way::Send] {
            if let Some(flows) = tested.total(way) {
                let title = format!("{} with {} flows", way.words(), flows.flows);
                text.push_str(&words::intervals(&title, &flows.samples));
            }
        }
    }
    if let Some(tested) = outcome.tests.last() {
        let rates: Vec<InterfaceRate> = tested
            .interfaces
            .iter()
            .flat_map(|(name, rates)| {
                [("in", rates.receive), ("out", rates.transmit)].map(|(way, rate)| InterfaceRate {
                    name: name.clone(),
                    way,
                    current: rate.current_bytes_per_s,
                    average: rate.average_bytes_per_s,
                    minimum: rate.minimum_bytes_per_s,
                    maximum: rate.maximum_bytes_per_s,
                    total: rate.total_bytes,
                })
            })
            .collect();
        // The whole of one test only: a sum over tests of both ways would be no rate of anything.
        text.push_str(&words::interfaces(&rates));
    }
    if let Some(trips) = &outcome.trips {
        text.push_str(&words::trips(&outcome.rows, trips.idle.median_ns));
    }
    let found: Vec<_> = [Way::Receive, Way::Send]
        .into_iter()
        .map(|way| (way, outcome.findings(way)))
        .collect();
    text.push_str(&words::findings(&found));
    text
}

/// A server and the way to it in one line.
fn place(server: &Server, ground: &Ground) -> String {
    let mut parts = vec![format!("network to {}", server.label)];
    if let Some(interface) = &ground.interface {
        parts.push(format!("through {interface}"));
    }
    if let Some(bits) = ground.path.link_bits_per_s {
        parts.push(format!(
            "a link of {}",
            limits::bits(bits).replace(".00", "")
        ));
    }
    if let Some(mtu) = ground.path.mtu {
        parts.push(format!("MTU {mtu}"));
    }
    if let Some(rtt) = ground.path.rtt_s {
        let nanos = (rtt * 1e9).round() as u64;
        parts.push(format!(
            "round trip {}",
            crate::report::table::latency(Some(nanos))
        ));
    }
    parts.join(", ")
}

/// Progress on standard error.
struct Show {
    quiet: bool,
    terminal: bool,
    bar: Option<ProgressBar>,
    seconds: f64,
}

impl Show {
    fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: std::io::stderr().is_terminal(),
            bar: None,
            seconds: 0.0,
        }
    }

    fn line(&mut self, text: &str) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl NetworkWatch for Show {
    fn note(&mut self, text: &str) {
        self.line(text);
    }

    fn results(&mut self, directory: &Path) {
        self.line(&format!("results: {}", directory.display()));
    }

    fn begin(&mut self, label: &str, seconds: f64) {
        self.seconds = seconds;
        if self.quiet {
            return;
        }
        if !self.terminal {
            return eprintln!("{label}");
        }
        let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} {bar:20} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(label.to_owned());
        self.bar = Some(bar);
    }

    fn progress(&mut self, seconds: f64, rates: &[(Way, f64)]) {
        let Some(bar) = &self.bar else { return };
        bar.set_position((seconds / self.seconds.max(0.1) * 1000.0).min(1000.0) as u64);
        let rates: Vec<String> = rates
            .iter()
            .map(|(way, rate)| format!("{} {}", way.words(), limits::bits(*rate)))
            .collect();
        let left = (self.seconds - seconds).max(0.0);
        bar.set_message(format!("{}, {left:.0} s left", rates.join(", ")));
    }

    fn row(&mut self, row: &Row) {
        if row.status != Status::Ok {
            let error = row.error.clone().unwrap_or_default();
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            // Not a note: without it nothing tells why there is no figure.
            return eprintln!("  {}: {}: {error}", row.workload, row.status.key());
        }
        let [megabytes, mebibytes, gigabits] = crate::report::table::rate(row.throughput());
        let way = if row.direction == "read" {
            Way::Receive
        } else {
            Way::Send
        };
        let deep = if row.stage == "round_trip" {
            format!(", {} under way", row.iodepth)
        } else {
            String::new()
        };
        self.line(&format!(
            "  {}, {}{deep}: {gigabits} Gbit/s = {megabytes} MB/s = {mebibytes} MiB/s",
            way.words(),
            row.workload
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_its_own_wins_over_the_common_one() {
        assert!(names_a_port("nas:1") && names_a_port("[::1]:1"));
        assert!(!names_a_port("nas") && !names_a_port("[::1]") && !names_a_port("fe80::1"));
    }
}
