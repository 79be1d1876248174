//! Where passwords come from: a prompt without echo, the environment, or a file that only its owner can read.

use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::spec::uri::TargetSpec;
use crate::target::Secret;

/// The variable that holds a password.
const VARIABLE: &str = "NASGAUGE_PASSWORD";

/// The password of a target with a user: from the credentials file, the environment, or a prompt.
pub(super) fn secret(spec: &TargetSpec, file: Option<&Path>) -> Result<Secret> {
    if let Some(path) = file
        && let Some(password) = from_file(path, spec)?
    {
        return Ok(Secret(Some(password)));
    }
    if let Ok(password) = std::env::var(VARIABLE) {
        return Ok(Secret(Some(password)));
    }
    let user = spec.user.as_deref().unwrap_or_default();
    if !std::io::stdin().is_terminal() {
        let message =
            format!("no password for user '{user}': set {VARIABLE}, or give --credentials FILE");
        return Err(Error::usage(message).at(&spec.uri));
    }
    rpassword::prompt_password(format!("Password of {user} at {}: ", spec.host()))
        .map(|password| Secret(Some(password)))
        .map_err(|error| Error::usage(format!("the password prompt failed: {error}")))
}

/// The password under a `[host]` heading, or under none, where the user fits.
fn from_file(path: &Path, spec: &TargetSpec) -> Result<Option<String>> {
    let place = path.display();
    let wrong = |error: std::io::Error| Error::usage(format!("credentials file {place}: {error}"));
    let mode = std::fs::metadata(path).map_err(wrong)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Error::usage(format!(
            "credentials file {place} can be read by others; run: chmod 600 {place}"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(wrong)?;
    find(&text, spec).map_err(|line| {
        // The line itself may hold the password, so only its number is told.
        Error::usage(format!("credentials file {place} line {line}: not a [host] heading, username=, password= or domain="))
    })
}

/// The password for a target; Err with the number of a line that makes no sense.
fn find(text: &str, spec: &TargetSpec) -> std::result::Result<Option<String>, usize> {
    let mut found = None;
    let mut section: Section = Section::default();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with(';') {
            continue;
        }
        if let Some(host) = trimmed
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            found = section.password_for(spec).or(found);
            section = Section {
                host: Some(host.to_owned()),
                ..Section::default()
            };
            continue;
        }
        let (key, value) = line.split_once('=').ok_or(index + 1)?;
        match key.trim() {
            "username" => section.user = Some(value.trim().to_owned()),
            // A password may begin or end with a space; only the one after '=' is style.
            "password" => {
                section.password = Some(value.strip_prefix(' ').unwrap_or(value).to_owned());
            }
            "domain" => {}
            _ => return Err(index + 1),
        }
    }
    Ok(section.password_for(spec).or(found))
}

#[derive(Default)]
struct Section {
    host: Option<String>,
    user: Option<String>,
    password: Option<String>,
}

impl Section {
    fn password_for(&self, spec: &TargetSpec) -> Option<String> {
        let host_fits = self
            .host
            .as_ref()
            .is_none_or(|host| spec.hosts.iter().any(|name| name == host));
        let user_fits = self.user.is_none() || self.user == spec.user;
        self.password.clone().filter(|_| host_fits && user_fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_of_the_host_and_user_is_found() {
        let text = "password = everywhere\n# comment\n[nas]\nusername = me\npassword = at nas\n[other]\npassword=x\n";
        let password = |uri: &str| find(text, &TargetSpec::parse(uri).expect(uri));
        assert_eq!(password("smb://me@nas/s"), Ok(Some("at nas".into())));
        assert_eq!(password("smb://you@nas/s"), Ok(Some("everywhere".into())));
        assert_eq!(password("iscsi://me@other/iqn/0"), Ok(Some("x".into())));
        assert_eq!(
            find(
                "[a]\nhunter2\n",
                &TargetSpec::parse("smb://a/s").expect("uri")
            ),
            Err(2)
        );
    }
}
