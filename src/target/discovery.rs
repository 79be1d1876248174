//! What a host offers before anything of it is a target: the words between who asks and the protocols that know how.
//!
//! Must not know: any protocol. Sizes are in bytes.

use std::time::Instant;

use serde::Serialize;

use super::Login;
use crate::error::Result;

/// How one kind of server is asked what it offers.
pub struct Discovery {
    /// The URI scheme and the CSV key.
    pub name: &'static str,
    /// What people call the server: "no NFS server answers".
    pub server: &'static str,
    /// The TCP port that is asked unless another is named.
    pub port: u16,
    /// Asks. Fails where no such server answers; one that answers and offers nothing says so in an [`Offer`] without URI.
    pub find: fn(&Search) -> Result<Vec<Offer>>,
}

/// What to ask, and how.
pub struct Search {
    /// Host, ports and user, as the URI of a target has them, without a path; its connect timeout bounds each wait.
    pub login: Login,
    /// Also what servers hide or keep for themselves.
    pub hidden: bool,
    /// From then on no more details are asked for; what is known by then is the answer.
    pub enough: Instant,
}

impl Search {
    /// Whether there is time for one more question.
    #[must_use]
    pub fn has_time(&self) -> bool {
        Instant::now() < self.enough
    }

    /// The URI of what lies at `path` (decoded, with its leading slash) of this host.
    #[must_use]
    pub fn uri(&self, path: &str) -> String {
        let mut spec = self.login.spec.clone();
        path.clone_into(&mut spec.path);
        spec.compose()
    }
}

/// Something that can be a target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// What it is: "NFS export".
    pub what: &'static str,
    /// Its name on the server.
    pub name: String,
    /// Its URI; None where there is none to give, and a note says why.
    pub uri: Option<String>,
    /// Whether the server let us in; None where that was not tried.
    pub accessible: Option<bool>,
    /// How big it is, where known.
    pub size_bytes: Option<u64>,
    /// What can still be written, where known.
    pub free_bytes: Option<u64>,
    /// What is to be known before it is used.
    pub notes: Vec<String>,
}

impl Offer {
    /// Something with a URI of which nothing else is known yet.
    #[must_use]
    pub fn new(what: &'static str, name: impl Into<String>, uri: String) -> Self {
        Self {
            what,
            name: name.into(),
            uri: Some(uri),
            ..Self::default()
        }
    }

    /// A server that answers and gives no target.
    #[must_use]
    pub fn bare(what: &'static str, note: impl Into<String>) -> Self {
        Self {
            what,
            notes: vec![note.into()],
            ..Self::default()
        }
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}
