//! What is known about one direction of one workload: its own rate, the layers measured alone, counters, differences.
//!
//! Everything but the rate is optional; what is not known is absent, never zero. In text, rates have units: `"463 MB/s"`,
//! `"9.39 Gbit/s"`, `"112 MiB/s"`.

use serde::{Deserialize, Serialize};

use crate::op::Direction;
use crate::units::{Bytes, Nanos, Rate};

/// A layer that can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// What this program or the client's memory can do at all.
    Tool,
    /// The link's rate less framing.
    Line,
    /// TCP, with as many connections as carry most.
    Network,
    /// TCP, with as many connections as the workload uses.
    SingleFlow,
    /// Requests and answers of this block size and depth.
    RoundTrip,
    /// The protocol, with memory behind it.
    Protocol,
    /// Our own client on the export that is mounted.
    OwnClient,
    /// The server's disks at the workload's own concurrency.
    Storage,
    /// The server's disks at their best.
    StorageBest,
}

/// What must be said of a figure wherever it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Above what the line or the network can carry.
    AboveCeiling,
    /// A ceiling raised to what was seen above it.
    CeilingUnderestimated,
    /// What made the figure was itself the limit: it is a lower bound only.
    GeneratorBound,
    /// From the server's memory, on purpose.
    HotSet,
    /// The server's memory may have answered.
    ServerCached,
    /// This computer's memory answered, as its counters confirm.
    ClientCached,
    /// Not proven to be measured on what the share lies on.
    Unproven,
    /// Accepted, not stored for sure.
    NotDurable,
    /// The payload may have been made smaller.
    Compressible,
    /// Blocks were shared instead of copied.
    Offloaded,
    /// The highest moment, not the mean.
    Peak,
    /// Client and server are one computer: no statement about a cable.
    SameHost,
    /// Too short to be steady.
    TooShort,
}

/// A rate, its 95 % interval where it was repeated, and what must be said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The rate.
    pub rate: Rate,
    /// The interval's lower end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Rate>,
    /// The interval's upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Rate>,
    /// Marks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

impl Figure {
    /// A rate alone.
    #[must_use]
    pub fn of(bytes_per_s: f64) -> Self {
        Self {
            rate: Rate(bytes_per_s),
            low: None,
            high: None,
            marks: Vec::new(),
        }
    }

    /// Whether it has a mark.
    #[must_use]
    pub fn has(&self, mark: Mark) -> bool {
        self.marks.contains(&mark)
    }

    /// The upper end of its interval.
    #[must_use]
    pub fn top(&self) -> f64 {
        self.high.map_or(self.rate.0, |high| high.0)
    }

    /// The lower end of its interval.
    #[must_use]
    pub fn bottom(&self) -> f64 {
        self.low.map_or(self.rate.0, |low| low.0)
    }
}

/// A layer measured alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Which.
    pub rung: Rung,
    /// What it carries.
    pub figure: Figure,
}

/// What the workload had under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Bytes of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<Bytes>,
    /// Requests under way, on all connections together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
}

/// What counters said during the workload; percentages are 0 to 100.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Counters {
    /// The busiest core here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_core_percent: Option<f64>,
    /// The busiest core of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_core_percent: Option<f64>,
    /// Times that the server's processor share was used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_throttled_periods: Option<u64>,
    /// Segments sent again, percent of all, on a path without them before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmit_percent: Option<f64>,
    /// Of its busy time, what the connection waited for a buffer's room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_limited_percent: Option<f64>,
    /// The busiest of the server's disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_busy_percent: Option<f64>,
    /// Requests that waited in that disk's queue, mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_queue: Option<f64>,
    /// What the bus of the slower network card carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<Rate>,
    /// The time of TCP's handshake with the server before anything was asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_idle: Option<Nanos>,
    /// The same while the workload ran: packets that stand in a queue on the way make it longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_loaded: Option<Nanos>,
    /// Flushes or locks that a request waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flushes: Option<u64>,
}

/// What one change of one thing did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Differences {
    /// Rate with a second connection over that with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_connection: Option<f64>,
    /// Rate at half the depth over that at the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_depth: Option<f64>,
    /// Latency at half the depth over that at the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_depth_latency: Option<f64>,
    /// Rate at twice the depth over that at the whole: what tells where the depth is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub double_depth: Option<f64>,
    /// Latency at twice the depth over that at the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub double_depth_latency: Option<f64>,
    /// Latency of one request alone, on the quiet path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_alone: Option<Nanos>,
    /// Rate from the server's memory over that from its disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_over_cold: Option<f64>,
    /// Rate over a faster or slower network over that here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_network: Option<f64>,
    /// Rate with other congestion control over that here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_congestion_control: Option<f64>,
    /// Rate of another client of the same share over that here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_client: Option<f64>,
    /// Rate of another server program on the same disks over that here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_server: Option<f64>,
    /// Rate of the same disks without that server program over that here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_server: Option<f64>,
    /// Rate with faster storage behind the same share over that here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faster_storage: Option<f64>,
    /// Rate with a second network card over that with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_card: Option<f64>,
}

/// One direction of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Which way.
    pub direction: Direction,
    /// What was done, in words.
    #[serde(default)]
    pub workload: String,
    /// What it reached; for writes the durable rate where one is known.
    pub end_to_end: Figure,
    /// Layers measured alone.
    #[serde(default, rename = "layer", skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layer>,
    /// The load.
    #[serde(default)]
    pub load: Load,
    /// Counters.
    #[serde(default)]
    pub counters: Counters,
    /// Differences.
    #[serde(default)]
    pub differences: Differences,
    /// The target is a mount of the kernel.
    #[serde(default)]
    pub mounted: bool,
}

impl Case {
    /// A rate of which nothing else is known.
    #[must_use]
    pub fn of(direction: Direction, bytes_per_s: f64) -> Self {
        Self {
            direction,
            workload: String::new(),
            end_to_end: Figure::of(bytes_per_s),
            layers: Vec::new(),
            load: Load::default(),
            counters: Counters::default(),
            differences: Differences::default(),
            mounted: false,
        }
    }

    /// What a layer carries.
    #[must_use]
    pub fn layer(&self, rung: Rung) -> Option<&Figure> {
        let found = self.layers.iter().find(|layer| layer.rung == rung);
        found.map(|layer| &layer.figure)
    }

    /// The workload's rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.end_to_end.rate.0
    }
}
