//! A full disk: a server's tables are on a small file system, which is filled to the last byte. The script
//! mounts it, because only root can.

use crate::cluster::DATABASE;
use crate::server::Server;
use crate::{Result, env, process};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

pub struct SmallDisk {
    space: PathBuf,
    filler: PathBuf,
    /// There is one small disk, and one cell at a time fills it. The lock ends when this file is closed.
    _turn: File,
}

/// Returns where it is mounted, or `None` if the script could not mount it.
pub fn mounted() -> Option<PathBuf> {
    std::env::var_os("SHARDMASTER_FULL_DISK").map(PathBuf::from)
}

impl SmallDisk {
    /// Moves all tables of a server's database to the disk, including those that are created later.
    pub fn under(server: &Server) -> Result<SmallDisk> {
        let mount = mounted().ok_or("no small file system is mounted: only root can")?;
        let turn = File::create(env::run_dir()?.join("small-disk.lock"))?;
        turn.lock()?;
        let space = mount.join(process::unique("space"));
        let filler = mount.join("filler");
        fs::create_dir(&space)?;
        let mut client = server.superuser(DATABASE)?;
        client.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", space.display()))?;
        for statement in [
            "GRANT CREATE ON TABLESPACE small TO PUBLIC",
            "ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small",
            "ALTER INDEX ALL IN TABLESPACE pg_default SET TABLESPACE small",
        ] {
            client.batch_execute(statement)?;
        }
        client.batch_execute(&format!("ALTER DATABASE {DATABASE} SET default_tablespace = small"))?;
        Ok(SmallDisk { space, filler, _turn: turn })
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(&self.filler)?;
        for size in [1 << 20, 64 << 10, 4 << 10, 1] {
            let block = vec![0; size];
            while file.write_all(&block).is_ok() {}
        }
        Ok(())
    }

    pub fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(&self.filler)?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.filler);
        let _ = fs::remove_dir_all(&self.space);
    }
}
