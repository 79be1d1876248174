//! Sentences for shares that do not let us in, whichever client asked.

use super::place::Place;
use crate::error::{Error, Kind, Phase};

/// The server has no such share.
pub(super) fn no_share(address: &str, share: &str) -> Error {
    Error::new(
        Phase::Open,
        Kind::NotFound,
        format!("{address} has no share '{share}'; check its name"),
    )
}

/// The server refuses this user, or guests.
pub(super) fn not_let_in(address: &str, place: &Place) -> Error {
    let share = &place.share;
    let message = match place.user {
        None => format!(
            "{address} takes no guests on share '{share}'; name a user, as in smb://user@{}/{share}",
            place.host(0)
        ),
        Some(_) => format!(
            "{address} did not let {} in to share '{share}': the user name or password is wrong, \
             or the user may not use this share",
            place.login_name()
        ),
    };
    Error::new(Phase::Authenticate, Kind::Denied, message)
}
