//! Where things are, as the scripts say it.

use crate::{Result, cluster};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Directory of the programs of the PostgreSQL under test.
pub fn bindir() -> Result<PathBuf> {
    required("SHARDMASTER_BINDIR")
}

/// Directory of the programs of another major version: a server's, no client's.
pub fn bindir_of(major: u32) -> Result<PathBuf> {
    Ok(required("SHARDMASTER_MAJORS")?.join(major.to_string()).join("bin"))
}

/// Directory of the programs of another major version for which the extension is built.
pub fn bindir_built(major: u32) -> Result<PathBuf> {
    Ok(required("SHARDMASTER_BUILT")?.join(major.to_string()).join("bin"))
}

/// Whether the server under test comes in a package that may lack what others have.
pub fn may_lack() -> bool {
    std::env::var_os("SHARDMASTER_MAY_LACK").is_some()
}

/// Directory below which servers are made.
pub fn run_dir() -> Result<PathBuf> {
    required("SHARDMASTER_RUN_DIR")
}

/// A program of this crate, by name.
pub fn program(name: &str) -> Result<PathBuf> {
    Ok(required("SHARDMASTER_PROGRAMS")?.join(name))
}

fn required(variable: &str) -> Result<PathBuf> {
    let value = std::env::var_os(variable)
        .ok_or_else(|| format!("{variable} is not set; run `make test`, `make demo` or `make bench`"))?;
    Ok(PathBuf::from(value))
}

/// Runs a program to its end; its output is the error if it fails.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(format!("{command:?} failed: {}\n{out}{err}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A cluster that servers are copied from, made once in a run for the programs in `bindir`: with
/// the database and the roles that all of them have, and without WAL, which each copy makes anew.
pub fn template(bindir: &Path) -> Result<PathBuf> {
    // Another test may be at it: each would make its own, at the price of a dozen of copies.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().map_err(|_| "a template was not made")?;
    let name = bindir.to_string_lossy().replace('/', "-");
    let template = run_dir()?.join(format!("template{name}"));
    if template.exists() {
        return Ok(template);
    }
    // Another program of the same run may be at it, too: the first rename wins.
    let own = run_dir()?.join(format!("template.{}{name}", std::process::id()));
    initdb(bindir, &own)?;
    prepare(bindir, &own)?;
    match std::fs::rename(&own, &template) {
        Ok(()) => {}
        Err(_) if template.exists() => std::fs::remove_dir_all(&own)?,
        Err(e) => return Err(format!("cannot rename {}: {e}", own.display()).into()),
    }
    Ok(template)
}

fn prepare(bindir: &Path, data: &Path) -> Result<()> {
    let version = std::fs::read_to_string(data.join("PG_VERSION"))?;
    let version = version.trim().parse().map_err(|e| format!("PG_VERSION {version}: {e}"))?;
    let statements = data.join("prepare.sql");
    // A server without others reads one a line.
    std::fs::write(&statements, cluster::preparations(version).join(";\n") + "\n")?;
    let mut single = Command::new(bindir.join("postgres"));
    single.args(["--single", "-c", "exit_on_error=on", "-c", "log_min_messages=error", "-D"]);
    run(single.arg(data).arg("postgres").stdin(Stdio::from(File::open(&statements)?)))?;
    std::fs::remove_file(statements)?;
    for entry in std::fs::read_dir(data.join("pg_wal"))? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Makes an empty cluster with the programs in `bindir`.
pub fn initdb(bindir: &Path, data: &Path) -> Result<()> {
    run(initdb_command(bindir).arg(data)).map(drop)
}

/// The cluster that pg_upgrade fills: since PostgreSQL 18 one would have checksums,
/// which the older cluster has not.
pub fn initdb_for_upgrade(bindir: &Path, data: &Path) -> Result<()> {
    run(initdb_command(bindir).arg(data).arg("--no-data-checksums")).map(drop)
}

fn initdb_command(bindir: &Path) -> Command {
    let mut initdb = Command::new(bindir.join("initdb"));
    initdb.args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D"]);
    initdb
}

/// Copies the template to `data` and gives the copy a system identifier of its own:
/// servers that look like clones of each other would not be like real ones. Packages of a server
/// alone cannot do that: with them each cluster is made from the beginning.
pub fn copy_template(bindir: &Path, data: &Path, number: u32) -> Result<()> {
    if !bindir.join("pg_resetwal").exists() {
        return initdb(bindir, data);
    }
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(template(bindir)?).arg(data))?;
    let control = data.join("global/pg_control");
    let mut bytes = std::fs::read(&control)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let identifier =
        (now.as_secs() << 32) | (u64::from(std::process::id() & 0xf_ffff) << 12) | u64::from(number);
    bytes[..8].copy_from_slice(&identifier.to_ne_bytes());
    std::fs::write(&control, bytes)?;
    // Writes the control file with a valid checksum and WAL of this identifier.
    run(Command::new(bindir.join("pg_resetwal")).arg("-f").arg(data))?;
    Ok(())
}
