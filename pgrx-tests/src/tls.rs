//! Certificates of a private authority, and servers that accept TCP connections by TLS alone.

use crate::server::{Server, Stop};
use crate::{Result, env};
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// A certificate and its key, in PEM files.
pub struct Issued {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An authority whose certificates only clients with its root trust.
pub struct Authority {
    dir: PathBuf,
    own: Issued,
}

/// Arguments contain no blanks, because the directory of a run has none.
fn openssl(arguments: &str) -> Result<()> {
    env::run(Command::new("openssl").args(arguments.split_whitespace())).map(drop)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| "a path that is no text".into())
}

impl Authority {
    pub fn new(dir: &Path, name: &str) -> Result<Authority> {
        let dir = dir.join(name);
        fs::create_dir(&dir)?;
        let own = Issued { certificate: dir.join("ca.crt"), key: dir.join("ca.key") };
        let (certificate, key) = (text(&own.certificate)?, text(&own.key)?);
        let subject = format!("/CN={name}");
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -days 1 -subj {subject} -keyout {key} -out {certificate}"
        ))?;
        Ok(Authority { dir, own })
    }

    /// Returns the root certificate that clients of this authority trust.
    pub fn root(&self) -> &Path {
        &self.own.certificate
    }

    /// Issues a certificate for a host or a role. With 0 days it has already expired when it is used.
    pub fn issue(&self, name: &str, days: u32) -> Result<Issued> {
        let file = |kind: &str| self.dir.join(format!("{name}-{days}.{kind}"));
        let issued = Issued { certificate: file("crt"), key: file("key") };
        let (request, extensions) = (file("csr"), file("ext"));
        fs::write(&extensions, format!("subjectAltName=DNS:{name}\n"))?;
        let subject = format!("/CN={name}");
        let (key, request) = (text(&issued.key)?, text(&request)?);
        openssl(&format!("req -newkey rsa:2048 -nodes -subj {subject} -keyout {key} -out {request}"))?;
        let (root, root_key) = (text(&self.own.certificate)?, text(&self.own.key)?);
        let (certificate, extensions) = (text(&issued.certificate)?, text(&extensions)?);
        openssl(&format!(
            "x509 -req -in {request} -CA {root} -CAkey {root_key} -CAcreateserial -days {days} -extfile {extensions} -out {certificate}"
        ))?;
        Ok(issued)
    }
}

/// Returns an address that nobody else listens on. All test servers use the same port.
pub fn address() -> IpAddr {
    static NUMBER: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, 80 + NUMBER.fetch_add(1, Ordering::Relaxed), high, low.max(1)])
}

/// From now on the server accepts TCP by TLS alone, with this certificate. `rule` is how pg_hba.conf
/// authenticates the mover.
pub fn require(
    server: &mut Server,
    address: IpAddr,
    authority: &Authority,
    certificate: &Issued,
    rule: &str,
) -> Result<()> {
    let data = server.data();
    fs::copy(&certificate.certificate, data.join("server.crt"))?;
    fs::copy(&certificate.key, data.join("server.key"))?;
    fs::set_permissions(data.join("server.key"), Permissions::from_mode(0o600))?;
    fs::write(
        data.join("pg_hba.conf"),
        format!("local all all trust\nhostssl all all 127.0.0.0/8 {rule}\n"),
    )?;
    server.configure(&[
        "ssl = on",
        &format!("ssl_ca_file = '{}'", authority.root().display()),
        &format!("listen_addresses = '{address}'"),
    ])?;
    server.restart(Stop::Fast)
}

/// Returns a connection string that leads to the address and trusts an authority.
pub fn conninfo(host: &str, address: IpAddr, authority: &Authority, database: &str, user: &str) -> String {
    format!(
        "host={host} hostaddr={address} port=5432 dbname={database} user={user} sslmode=verify-full sslrootcert={}",
        authority.root().display()
    )
}
