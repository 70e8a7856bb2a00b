//! Files of others that a session reads: only plain ones.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a plain file. Opening a pipe without a writer would block for ever, and could not be cancelled or shut down;
/// so this never waits, and refuses all but plain files.
pub fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Error::new(ErrorKind::InvalidInput, "it is not a plain file"))
    }
}

#[cfg(test)]
mod tests {
    use super::open;
    use std::ffi::CString;
    use std::path::Path;

    #[test]
    fn a_pipe_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("shardmaster-pipe-{}", std::process::id()));
        let path_c = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: this is a system call with a NUL-terminated text.
        assert_eq!(unsafe { libc::mkfifo(path_c.as_ptr(), 0o600) }, 0);
        let opened = open(&path).map(drop);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(opened.unwrap_err().to_string(), "it is not a plain file");
        assert!(open(&std::env::temp_dir()).is_err() && open(Path::new("/dev/tty")).is_err());
        assert!(open(&std::env::current_exe().unwrap()).is_ok());
    }
}
