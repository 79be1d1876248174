//! Histograms in the `HdrHistogram` V2 format, so that reports can cross a pipe.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as V2Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Deserializer, Serializer, de, ser};

/// Writes the histogram as bytes.
pub fn serialize<S: Serializer>(
    histogram: &Histogram<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| ser::Error::custom(format!("{error:?}")))?;
    serializer.collect_seq(bytes)
}

/// Reads it back.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Histogram<u64>, D::Error> {
    let bytes = Vec::<u8>::deserialize(deserializer)?;
    let mut merged = crate::stats::latency_histogram();
    let read: Histogram<u64> = V2Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| de::Error::custom(format!("{error:?}")))?;
    merged
        .add(&read)
        .map_err(|error| de::Error::custom(format!("{error:?}")))?;
    Ok(merged)
}
