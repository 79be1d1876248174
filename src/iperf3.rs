//! What iperf3 and its kin say as JSON: the events of a running test, and its end.
//!
//! Pure, and lenient: fields differ between versions, so what is missing is None. Rates are in bits per second and times
//! in seconds, as iperf3 has them; sizes are in bytes. Must not know: how a test is run.

use serde::Deserialize;

/// One line of a stream of events (`--json-stream`).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// The connections are up and data flows from now on.
    Start(Start),
    /// One sample.
    Interval(Interval),
    /// The figures of the whole test.
    End(End),
    /// It failed; iperf3's own sentence.
    Error(String),
    /// Something that is of no use here.
    #[serde(other)]
    Other,
}

impl Event {
    /// Reads one line; Err has the reason.
    pub fn parse(line: &str) -> Result<Self, String> {
        // `other` takes no content, so an unknown event is read as one by hand.
        #[derive(Deserialize)]
        struct Named {
            event: String,
        }
        serde_json::from_str(line).or_else(|error| {
            let named: Named = serde_json::from_str(line).map_err(|_| error.to_string())?;
            match named.event.as_str() {
                "start" | "interval" | "end" | "error" => Err(error.to_string()),
                _ => Ok(Self::Other),
            }
        })
    }
}

/// How the test began.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Start {
    /// The data connections.
    pub connected: Vec<Connected>,
    /// Largest segment of the control connection.
    pub tcp_mss_default: Option<u32>,
    /// Send buffer of a data connection.
    pub sndbuf_actual: Option<u64>,
    /// Receive buffer of a data connection.
    pub rcvbuf_actual: Option<u64>,
}

/// A data connection's ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Connected {
    /// Address here.
    pub local_host: String,
    /// Port here.
    pub local_port: u16,
    /// Address of the server.
    pub remote_host: String,
    /// Port of the server.
    pub remote_port: u16,
}

/// One sample of all connections.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// Each connection.
    pub streams: Vec<IntervalStream>,
    /// All that go the main way.
    pub sum: IntervalSum,
    /// All that go the other way, in a test of both at once.
    pub sum_bidir_reverse: Option<IntervalSum>,
}

/// One sample of one connection, as its own end sees it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IntervalStream {
    /// Segments sent again in this interval; only at the sender.
    pub retransmits: Option<i64>,
    /// Congestion window.
    pub snd_cwnd: Option<u64>,
    /// Round-trip time in microseconds.
    pub rtt: Option<u32>,
    /// Path MTU.
    pub pmtu: Option<u32>,
    /// This end sends.
    pub sender: bool,
    /// Part of the warm-up.
    pub omitted: bool,
}

/// One sample of one way.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IntervalSum {
    /// Seconds from the start of the warm-up, or of the measured time once that began.
    pub start: f64,
    /// Seconds, likewise.
    pub end: f64,
    /// Length.
    pub seconds: f64,
    /// Bytes that this end moved.
    pub bytes: u64,
    /// Segments sent again; only where this end sends.
    pub retransmits: Option<i64>,
    /// Part of the warm-up.
    pub omitted: bool,
    /// This end sends.
    pub sender: bool,
}

/// The figures of the whole test, warm-up left out.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct End {
    /// Each connection.
    pub streams: Vec<EndStream>,
    /// What the sender says of the main way.
    pub sum_sent: Option<Side>,
    /// What the receiver says of the main way.
    pub sum_received: Option<Side>,
    /// What the sender says of the other way, in a test of both at once.
    pub sum_sent_bidir_reverse: Option<Side>,
    /// What the receiver says of the other way.
    pub sum_received_bidir_reverse: Option<Side>,
    /// Processor time of both ends.
    pub cpu_utilization_percent: Option<Cpu>,
    /// Congestion control of the sender.
    pub sender_tcp_congestion: Option<String>,
    /// Congestion control of the receiver.
    pub receiver_tcp_congestion: Option<String>,
}

/// One connection's figures.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EndStream {
    /// As its sender has them.
    pub sender: Option<StreamSide>,
    /// As its receiver has them.
    pub receiver: Option<StreamSide>,
}

/// One end of one connection.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StreamSide {
    /// Start of the measured time.
    pub start: f64,
    /// End by this end's own clock.
    pub end: f64,
    /// Bytes.
    pub bytes: u64,
    /// Segments sent again.
    pub retransmits: Option<i64>,
    /// Largest congestion window, in bytes.
    pub max_snd_cwnd: Option<u64>,
    /// Largest round-trip time, microseconds.
    pub max_rtt: Option<u32>,
    /// Least round-trip time, microseconds.
    pub min_rtt: Option<u32>,
    /// Mean round-trip time, microseconds.
    pub mean_rtt: Option<u32>,
    /// The way this connection goes, from this program: true when it sends.
    pub sender: bool,
}

/// The sum over one way at one end.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Side {
    /// Start of the measured time.
    pub start: f64,
    /// End by this end's clock; `seconds` may be the other end's.
    pub end: f64,
    /// Bytes.
    pub bytes: u64,
    /// Segments sent again.
    pub retransmits: Option<i64>,
}

impl Side {
    /// Bits per second by this end's own time; None when no time passed.
    #[must_use]
    pub fn bits_per_s(&self) -> Option<f64> {
        let seconds = self.end - self.start;
        (seconds > 0.0).then(|| self.bytes as f64 * 8.0 / seconds)
    }
}

/// Processor time of a test's two processes, in percent of one core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Of the process here.
    pub host_total: f64,
    /// Of the process there.
    pub remote_total: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_test_are_read() {
        let line = r#"{"event":"interval","data":{"streams":[{"socket":1,"start":0.0,"end":1.0,"seconds":1.0,"bytes":5,"bits_per_second":40.0,"retransmits":2,"snd_cwnd":14480,"rtt":90,"omitted":true,"sender":true}],"sum":{"start":0.0,"end":1.0,"seconds":1.0,"bytes":5,"bits_per_second":40.0,"omitted":true,"sender":true}}}"#;
        let Ok(Event::Interval(interval)) = Event::parse(line) else {
            panic!("{:?}", Event::parse(line));
        };
        assert_eq!(interval.sum.bytes, 5);
        assert!(interval.sum.omitted);
        assert_eq!(interval.streams[0].rtt, Some(90));
        assert_eq!(
            Event::parse(r#"{"event":"error","data":"busy"}"#),
            Ok(Event::Error("busy".into()))
        );
    }

    #[test]
    fn an_event_of_another_version_is_no_failure_but_garbage_is() {
        let unknown = r#"{"event":"server_output_text","data":"x"}"#;
        assert_eq!(Event::parse(unknown), Ok(Event::Other));
        assert!(Event::parse(r#"{"event":"interval","data":7}"#).is_err());
        assert!(Event::parse("Connecting to host").is_err());
        assert!(Event::parse("").is_err());
    }

    /// esnet's iperf3 gives a receiver's sum the sender's `seconds`; its `end` is its own.
    #[test]
    fn a_receivers_rate_is_over_its_own_time() {
        let side = Side {
            start: 0.0,
            end: 3.134_015_8,
            bytes: 209_227_264,
            retransmits: None,
        };
        let rate = side.bits_per_s().expect("time passed");
        assert!((rate - 534_080_942.7).abs() < 100.0, "{rate}");
        assert_eq!(Side::default().bits_per_s(), None);
    }
}
