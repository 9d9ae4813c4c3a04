//! File permissions: the store holds session ids and payloads, so only its owner may read it.
//!
//! Directories get 0700 and files 0600. The database makes its files itself, in directories that are 0700; [`tighten`]
//! gives those files 0600 when the store is opened and when it is closed.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Options for a file that only its owner may read.
pub(crate) fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Makes a directory that only its owner may read, and its parents likewise.
pub(crate) fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.recursive(true).create(dir)
}

/// The permissions of a directory that others may read.
#[cfg(unix)]
pub(crate) fn loose_mode(dir: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(dir).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
pub(crate) fn loose_mode(_: &Path) -> Option<u32> {
    None // access lists decide there, and a user's own folders are private by default
}

/// Takes the permissions of everybody else away from `path` and everything in it.
///
/// A file that belongs to somebody else stays as it is: the store can be used all the same.
#[cfg(unix)]
pub(crate) fn tighten(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(data) = std::fs::symlink_metadata(path) else {
        return; // deleted meanwhile
    };
    if data.is_symlink() {
        return;
    }
    let mode = data.permissions().mode() & 0o777;
    if mode & 0o077 != 0
        && let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o700))
    {
        tracing::debug!(path = %path.display(), %error, "permissions cannot be changed");
    }
    if data.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
        for entry in entries {
            tighten(&entry.path());
        }
    }
}

#[cfg(not(unix))]
pub(crate) fn tighten(_: &Path) {}
