//! The configuration that libsmbclient reads: `$HOME/.smb/smb.conf`, once a process, when the first client is made.
//!
//! Where `HOME` is a directory made for one worker (it holds [`HOME_MARKER`]), our own file is written there, so that
//! neither this computer's nor its user's Samba settings change what is measured; a user's own `HOME` is never
//! touched. One such directory serves one process. Must not know: the network.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Error, Kind, Phase, Result};
use crate::target::HOME_MARKER;

/// What this process configured, since libsmbclient keeps its first configuration to the end.
static CONFIGURED: Mutex<Option<bool>> = Mutex::new(None);

/// Writes the configuration before the first client; returns whether it is ours alone, so that whether messages
/// are signed is known.
pub(super) fn configure(sign: bool) -> Result<bool> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let Some(home) = home.filter(|home| is_ours(home)) else {
        if sign {
            return Err(unsupported(
                "sign=1 works only in a worker process with its own HOME (libsmbclient takes it from a file \
                 there); this process has none, so leave sign=1 out",
            ));
        }
        return Ok(false);
    };
    let mut configured = CONFIGURED
        .lock()
        .map_err(|_| unsupported("libsmbclient's configuration was left half done"))?;
    match *configured {
        Some(before) if before == sign => return Ok(true),
        Some(_) => {
            return Err(unsupported(
                "libsmbclient can't change sign= within one process; give the target a process of its own",
            ));
        }
        None => {}
    }
    write(&home, sign)
        .map_err(|error| Error::io(Phase::Plan, &error, "write libsmbclient's configuration"))?;
    *configured = Some(sign);
    Ok(true)
}

fn is_ours(home: &Path) -> bool {
    home.is_absolute() && home.join(HOME_MARKER).is_file()
}

fn write(home: &Path, sign: bool) -> io::Result<()> {
    let directory = home.join(".smb");
    fs::create_dir_all(&directory)?;
    // Renamed into place, so that a process that shares the directory after all never reads half of it.
    let draft = directory.join(format!("smb.conf.{}", std::process::id()));
    fs::write(&draft, text(&directory, sign))?;
    fs::rename(draft, directory.join("smb.conf"))
}

/// Everything it may keep on this computer stays in that directory; names are resolved as all programs do.
fn text(directory: &Path, sign: bool) -> String {
    let signing = if sign { "required" } else { "if_required" };
    let place = directory.display();
    format!(
        "[global]\n\
         client signing = {signing}\n\
         client min protocol = SMB2_02\n\
         client max protocol = SMB3_11\n\
         unix charset = UTF-8\n\
         name resolve order = host\n\
         disable netbios = yes\n\
         lock directory = {place}\n\
         state directory = {place}\n\
         cache directory = {place}\n\
         private dir = {place}\n"
    )
}

fn unsupported(message: &str) -> Error {
    Error::new(Phase::Plan, Kind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_marked_home_is_written_to() {
        let home = tempfile::tempdir().expect("a directory");
        assert!(!is_ours(home.path()));
        fs::write(home.path().join(HOME_MARKER), "").expect("marker");
        assert!(is_ours(home.path()));
        write(home.path(), true).expect("written");
        let conf = fs::read_to_string(home.path().join(".smb/smb.conf")).expect("readable");
        assert!(conf.contains("client signing = required\n"), "{conf}");
        assert!(!is_ours(Path::new(".")));
    }

    #[test]
    fn signing_follows_the_option() {
        let conf = text(Path::new("/h/.smb"), false);
        assert!(conf.contains("client signing = if_required\n"));
        assert!(conf.contains("lock directory = /h/.smb\n"));
    }
}
