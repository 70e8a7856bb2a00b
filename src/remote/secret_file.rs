//! A file in memory, for what libpq only reads from files: a certificate's key has a path while libpq connects, on no
//! disk, and only for this process's own account.

use std::fs::File;
use std::hint::black_box;
use std::io::{Error, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd};

pub struct SecretFile(File);

impl SecretFile {
    pub fn new(content: &[u8]) -> Result<SecretFile> {
        let mut file = in_memory()?;
        // libpq requires that no other user can read a key.
        // SAFETY: this is a system call with an open descriptor.
        if unsafe { libc::fchmod(file.as_raw_fd(), 0o600) } != 0 {
            return Err(Error::last_os_error());
        }
        file.write_all(content)?;
        Ok(SecretFile(file))
    }

    /// Returns the path, which opens the file at its beginning each time. No other process has this descriptor.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// The C library reads a file through a buffer that it frees without wiping. Zeroed allocations of these sizes
/// overwrite free memory, best fits first; each size is allocated in turn, so that parts of the buffer are reached,
/// too.
impl Drop for SecretFile {
    fn drop(&mut self) {
        for size in [4 << 10, 2 << 10, 1 << 10, 512, 128] {
            let zeros: Vec<Vec<u8>> = (0..200).map(|_| vec![0; size]).collect();
            black_box(&zeros);
        }
    }
}

#[cfg(target_os = "linux")]
fn in_memory() -> Result<File> {
    // SAFETY: this is a system call; the descriptor that it returns has no other owner.
    unsafe {
        let descriptor = libc::memfd_create(c"shardmaster".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 { Err(Error::last_os_error()) } else { Ok(File::from_raw_fd(descriptor)) }
    }
}

#[cfg(not(target_os = "linux"))]
fn in_memory() -> Result<File> {
    Err(Error::new(std::io::ErrorKind::Unsupported, "this system has no files in memory"))
}

#[cfg(test)]
mod tests {
    use super::SecretFile;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_read_from_its_beginning_and_by_its_owner_alone() {
        let file = SecretFile::new(b"key").unwrap();
        for _ in 0..2 {
            assert_eq!(std::fs::read(file.path()).unwrap(), b"key");
        }
        let found = std::fs::metadata(file.path()).unwrap();
        assert!(found.is_file() && found.permissions().mode() & 0o777 == 0o600);
        let path = file.path();
        drop(file);
        assert!(std::fs::read(path).is_err());
    }
}
