//! The keys that encrypt credentials: they are read each time, and never kept.

use super::command::{self, CommandDeadline};
use super::{error, plain_file};
use crate::error::Failure;
use crate::guc;
use crate::keychain::encrypt::{KEY_BYTES, MasterKey};
use crate::server::data_directory;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use zeroize::Zeroizing;

/// The variable of the server's environment that is used if neither file nor command is set.
pub(super) const VARIABLE: &str = "SHARDMASTER_MASTER_KEY";
/// The command may have to ask a vault.
const COMMAND_TIME: Duration = Duration::from_secs(5);
/// Operators remove old keys once nothing is encrypted with them.
const MOST_KEYS: usize = 16;
const MOST_BYTES: usize = 8 << 10;

/// Returns all keys, one for each line: the first one encrypts, and each decrypts what it has encrypted.
pub fn all() -> Result<Vec<MasterKey>, Failure> {
    all_within(CommandDeadline::default())
}

/// Returns all keys for a caller that waits no longer than this for the command.
pub fn all_within(longest: CommandDeadline) -> Result<Vec<MasterKey>, Failure> {
    let (text, whence) = match (guc::master_key_file(), guc::master_key_command()) {
        (Some(path), _) => (file(Path::new(&path))?, format!("file \"{path}\"")),
        (None, Some(shell)) => {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &shell]);
            let said =
                command::output(command, longest.at_most(COMMAND_TIME), MOST_BYTES).map_err(|problem| {
                    error::unreadable_master_key(&format!("shardmaster.master_key_command {problem}"))
                })?;
            (said, "the output of shardmaster.master_key_command".to_owned())
        }
        (None, None) => match std::env::var_os(VARIABLE) {
            Some(value) => (Zeroizing::new(value.into_encoded_bytes()), format!("variable {VARIABLE}")),
            None => return Err(error::no_master_key()),
        },
    };
    read(&text).map_err(|problem| error::unreadable_master_key(&format!("{whence} {problem}")))
}

/// Reads a file that nobody but the server's operating-system account can read, under the rules that the server has
/// for the key of its certificate, and that is not where backups of the database would include it.
fn file(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let name = path.display();
    let failed = |error: std::io::Error| error::unreadable_master_key(&format!("file \"{name}\": {error}"));
    if !path.is_absolute() {
        return Err(error::unreadable_master_key(&format!("\"{name}\" is not an absolute path")));
    }
    let real = path.canonicalize().map_err(failed)?;
    if data_directory::path().is_some_and(|data| real.starts_with(data)) {
        return Err(error::unreadable_master_key(&format!(
            "file \"{name}\" is in the data directory, which backups copy"
        )));
    }
    let file = plain_file::open(&real).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    // A file of root may be readable by a group.
    let forbidden = if found.uid() == 0 { 0o027 } else { 0o077 };
    if found.mode() & forbidden != 0 {
        return Err(error::unreadable_master_key(&format!(
            "file \"{name}\" is not a file that the server's operating-system user alone can read"
        )));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 1));
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

fn read(text: &[u8]) -> Result<Vec<MasterKey>, String> {
    // The list never reallocates: that would leave copies of keys in memory.
    let mut keys = Vec::with_capacity(MOST_KEYS);
    for (at, line) in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate() {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let key = digits(line)
            .and_then(|key| MasterKey::new(&key))
            .ok_or_else(|| format!("line {} does not have 64 hexadecimal digits", at + 1))?;
        keys.push(key);
    }
    match keys.len() {
        0 => Err("has no key".to_owned()),
        1..=MOST_KEYS if text.len() <= MOST_BYTES => Ok(keys),
        _ => Err(format!("has more than {MOST_KEYS} keys, or {MOST_BYTES} bytes")),
    }
}

fn digits(line: &[u8]) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    if line.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in key.iter_mut().zip(line.chunks(2)) {
        for digit in pair {
            *byte = *byte << 4 | u8::try_from(char::from(*digit).to_digit(16)?).ok()?;
        }
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn keys_are_read_a_line_each() {
        let (a, b) = ("aB".repeat(32), "01".repeat(32));
        let ids =
            |text: &str| read(text.as_bytes()).map(|keys| keys.iter().map(|k| k.id()).collect::<Vec<_>>());
        let both = ids(&format!("# new\n{a}\r\n\n  {b}  ")).unwrap();
        assert_eq!(both, [ids(&a).unwrap(), ids(&b).unwrap()].concat());
        assert_eq!(ids(&a), ids(&a.to_lowercase()));
        for wrong in ["", "# none", &a[1..], &format!("{a}0"), &format!("{a} {b}"), &"g".repeat(64)] {
            let problem = ids(wrong).unwrap_err();
            assert!(!problem.contains("aBaB") && !problem.contains("gg"), "{problem}");
        }
        assert!(ids(&format!("{a}\n").repeat(17)).is_err());
    }
}
