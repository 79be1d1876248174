//! How often a workload runs on each target: a number, or `auto`, which goes on until the result is known well.
//!
//! Pure. Must not know: what a result is.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::stats::sequential::{LEAST, MOST};

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// This often.
    Fixed(u32),
    /// As often as the 95 % interval needs, within the limits of [`crate::stats::sequential`].
    Auto,
}

impl Repeats {
    /// Once.
    pub const ONCE: Self = Self::Fixed(1);

    /// How often at least.
    #[must_use]
    pub const fn least(self) -> u32 {
        match self {
            Self::Fixed(number) => number,
            Self::Auto => LEAST as u32,
        }
    }

    /// How often at most.
    #[must_use]
    pub const fn most(self) -> u32 {
        match self {
            Self::Fixed(number) => number,
            Self::Auto => MOST as u32,
        }
    }

    /// What satisfies both.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fixed(one), Self::Fixed(two)) => Self::Fixed(one.max(two)),
            _ => Self::Auto,
        }
    }
}

/// A number, or both limits.
impl std::fmt::Display for Repeats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(number) => write!(f, "{number}"),
            Self::Auto => write!(f, "{LEAST} to {MOST}"),
        }
    }
}

impl std::str::FromStr for Repeats {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number) => Ok(Self::Fixed(number)),
            Err(_) if text == "auto" => Ok(Self::Auto),
            Err(_) => Err(format!("'{text}' is neither a number of repeats nor auto")),
        }
    }
}

impl Serialize for Repeats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(number) => serializer.serialize_u32(*number),
            Self::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for Repeats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Repeats;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of repeats or \"auto\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Repeats, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Repeats, E> {
                let number = u32::try_from(number);
                number
                    .map(Repeats::Fixed)
                    .map_err(|_| E::custom("too many repeats"))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Repeats, E> {
                let number = u64::try_from(number).map_err(|_| E::custom("less than no repeat"))?;
                self.visit_u64(number)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        repeats: Repeats,
    }

    #[test]
    fn a_number_or_auto_and_nothing_else() {
        for (text, repeats) in [
            ("repeats = 7\n", Repeats::Fixed(7)),
            ("repeats = \"auto\"\n", Repeats::Auto),
        ] {
            let file = File { repeats };
            assert_eq!(toml::from_str::<File>(text), Ok(File { repeats }));
            assert_eq!(toml::to_string(&file).expect("TOML"), text);
        }
        for wrong in ["-1", "4294967296", "1.5", "true", "\"automatic\"", "\"\""] {
            assert!(
                toml::from_str::<File>(&format!("repeats = {wrong}")).is_err(),
                "{wrong}"
            );
        }
        assert_eq!("7".parse(), Ok(Repeats::Fixed(7)));
        assert_eq!("auto".parse(), Ok(Repeats::Auto));
        assert!("AUTO".parse::<Repeats>().is_err());
    }

    #[test]
    fn the_wish_for_more_wins() {
        let (three, nine) = (Repeats::Fixed(3), Repeats::Fixed(9));
        assert_eq!(three.or_more(nine), nine);
        assert_eq!(nine.or_more(Repeats::Auto), Repeats::Auto);
        assert_eq!((Repeats::Auto.least(), Repeats::Auto.most()), (5, 15));
        assert_eq!(Repeats::Auto.to_string(), "5 to 15");
    }
}
