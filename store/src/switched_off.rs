//! Subtools that are switched off for a session because it exceeded their rate limit.
//!
//! Each is a file in the executor's own folder. No request of the mailbox can switch a subtool on again; only a human
//! can, with `agent-magic-tool executor switch-on`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ground::task::name::SubtoolName;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::clock;
use protocol::code::Code;
use protocol::digest;
use protocol::error::ErrorBody;
use protocol::regular_file;
use protocol::task::TaskId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The extension of the files that say since when something is on again.
const SWITCHED_ON: &str = "on";
/// Far more than one entry has.
const MAX_ENTRY_BYTES: u64 = 64 << 10;

/// A subtool that is switched off for one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchedOffTool {
    pub tool: SubtoolName,
    pub uid: u32,
    pub session: Option<String>,
    pub since: Timestamp,
}

/// How a subtool is switched on again.
pub fn hint(tool: &SubtoolName, session: Option<&str>) -> String {
    let session = session.map(|session| format!(" --session {session}")).unwrap_or_default();
    format!("only a human can switch it on again: agent-magic-tool executor switch-on {tool}{session}")
}

/// The folder of the switched-off subtools.
#[derive(Debug, Clone)]
pub struct SwitchedOffTools {
    folder: PathBuf,
}

impl SwitchedOffTools {
    /// Uses a folder below the executor's folder, without creating it yet.
    pub fn below(executor: &Path) -> Self {
        Self { folder: executor.join("switched-off") }
    }

    /// Returns the refusal if `tool` is switched off for `caller`.
    pub fn refuse(&self, tool: &SubtoolName, caller: &Caller) -> io::Result<Option<ErrorBody>> {
        let path = self.path(tool, caller.uid, caller.session.as_deref());
        Ok(path.try_exists()?.then(|| {
            let message = format!("`{tool}` is switched off for this session, which exceeded its rate limit");
            ErrorBody::new(Code::SwitchedOff, message).hint(hint(tool, caller.session.as_deref()))
        }))
    }

    /// Switches a subtool off. Durable when it returns; does nothing if it is already off.
    pub fn switch_off(&self, off: &SwitchedOffTool) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.path(&off.tool, off.uid, off.session.as_deref());
        if path.try_exists()? {
            return Ok(());
        }
        self.write(off, &path)
    }

    fn write(&self, content: &SwitchedOffTool, path: &Path) -> io::Result<()> {
        let temporary = self.folder.join(format!(".{}", TaskId::new()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(content)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(&self.folder)?.sync_all()
    }

    /// Switches `tool` on again, for one session or for all. Returns what was switched on.
    pub fn switch_on(&self, tool: &SubtoolName, session: Option<&str>) -> io::Result<Vec<SwitchedOffTool>> {
        let mut off = self.all()?;
        off.retain(|off| off.tool == *tool && session.is_none_or(|session| off.session.as_deref() == Some(session)));
        for off in &off {
            let path = self.path(&off.tool, off.uid, off.session.as_deref());
            // First: without it, the calls of before would switch it off again.
            self.write(&SwitchedOffTool { since: clock::now(), ..off.clone() }, &path.with_extension(SWITCHED_ON))?;
            fs::remove_file(path)?;
        }
        Ok(off)
    }

    /// Returns when a human last switched `tool` on again for `caller`.
    pub fn switched_on(&self, tool: &SubtoolName, caller: &Caller) -> io::Result<Option<Timestamp>> {
        match fs::read(self.path(tool, caller.uid, caller.session.as_deref()).with_extension(SWITCHED_ON)) {
            Ok(text) => Ok(Some(serde_json::from_slice::<SwitchedOffTool>(&text)?.since)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns everything that is switched off, ordered by subtool and session.
    pub fn all(&self) -> io::Result<Vec<SwitchedOffTool>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().contains(&b'.') {
                let off: SwitchedOffTool =
                    serde_json::from_slice(&regular_file::read(&entry.path(), MAX_ENTRY_BYTES)?)?;
                all.push(off);
            }
        }
        all.sort_by(|one, other| (&one.tool, &one.session).cmp(&(&other.tool, &other.session)));
        Ok(all)
    }

    fn path(&self, tool: &SubtoolName, uid: u32, session: Option<&str>) -> PathBuf {
        let key = serde_json::to_vec(&(tool.as_str(), uid, session)).expect("strings and a number can be serialized");
        self.folder.join(&digest::hex(&Sha256::digest(key))[..32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subtool_is_off_for_one_session_until_it_is_switched_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let switches = SwitchedOffTools::below(folder.path());
        let caller =
            |session: Option<&str>| Caller { uid: 1, session: session.map(str::to_owned), ..Caller::default() };
        let tool: SubtoolName = "send".parse().expect("a name");
        let off = |session: Option<&str>| SwitchedOffTool {
            tool: tool.clone(),
            uid: 1,
            session: session.map(str::to_owned),
            since: Timestamp::UNIX_EPOCH,
        };
        for session in [Some("a"), None, Some("")] {
            switches.switch_off(&off(session)).expect("written");
            switches.switch_off(&SwitchedOffTool { since: Timestamp::MAX, ..off(session) }).expect("written");
        }
        assert_eq!(switches.all().expect("read"), [off(None), off(Some("")), off(Some("a"))]);
        let is_off = |session| switches.refuse(&tool, &caller(session)).expect("read").is_some();
        assert!(is_off(Some("a")) && is_off(None) && is_off(Some("")) && !is_off(Some("b")));
        assert_eq!(switches.switch_on(&tool, Some("a")).expect("removed"), [off(Some("a"))]);
        assert!(!is_off(Some("a")) && is_off(None));
        assert_eq!(switches.switch_on(&tool, None).expect("removed").len(), 2);
        assert_eq!(switches.switch_on(&tool, None).expect("nothing to remove"), []);
        assert!(!is_off(None));
    }
}
