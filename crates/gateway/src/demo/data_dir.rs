//! The data directory of the demo.

use crate::exit::Failure;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A directory of the user, or a private one that is removed with this value.
#[derive(Debug)]
pub(super) struct DemoData {
    path: PathBuf,
    temporary: bool,
}

impl DemoData {
    pub(super) fn open(given: Option<PathBuf>) -> Result<Self, Failure> {
        let temporary = given.is_none();
        let path = match given {
            Some(path) => path,
            None => create_private()?,
        };
        Ok(DemoData { path, temporary })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DemoData {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path); // the system cleans its temporary directory too
        }
    }
}

/// A new directory that only this user can enter. Fails if the path exists, so nobody can have prepared it.
fn create_private() -> io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unique = now.map_or(0, |since| since.as_nanos());
    let path = std::env::temp_dir().join(format!("rethread-demo-{}-{unique:x}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn temporary_directory_is_private_and_removed() {
        let data = DemoData::open(None).unwrap();
        let path = data.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("file"), "").unwrap();
        drop(data);
        assert!(!path.exists());
    }

    #[test]
    fn given_directory_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        drop(DemoData::open(Some(dir.path().to_owned())).unwrap());
        assert!(dir.path().exists());
    }
}
