//! The platforms of the packages.

/// A platform, as npm names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Platform {
    pub(super) os: &'static str,
    pub(super) cpu: &'static str,
}

/// The start and the end of a target triple, and its platform.
const PLATFORMS: &[(&str, &str, Platform)] = &[
    (
        "x86_64-",
        "-linux-gnu",
        Platform {
            os: "linux",
            cpu: "x64",
        },
    ),
    (
        "x86_64-",
        "-linux-musl",
        Platform {
            os: "linux",
            cpu: "x64",
        },
    ),
    (
        "aarch64-",
        "-linux-gnu",
        Platform {
            os: "linux",
            cpu: "arm64",
        },
    ),
    (
        "aarch64-",
        "-linux-musl",
        Platform {
            os: "linux",
            cpu: "arm64",
        },
    ),
];

impl Platform {
    /// The platform of a target triple.
    pub(super) fn of(target: &str) -> Result<Self, String> {
        let mut found = PLATFORMS
            .iter()
            .filter(|(cpu, os, _)| target.starts_with(cpu) && target.ends_with(os));
        let found = found.next().map(|(_, _, platform)| *platform);
        found.ok_or_else(|| format!("there are no packages for {target}; they exist for Linux on x86_64 and aarch64"))
    }

    /// The npm package of the platform.
    pub(super) fn package(self) -> String {
        format!("@rethread/{}-{}", self.os, self.cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_have_platforms() {
        for (target, package) in [
            ("x86_64-unknown-linux-gnu", "@rethread/linux-x64"),
            ("aarch64-unknown-linux-musl", "@rethread/linux-arm64"),
        ] {
            assert_eq!(Platform::of(target).map(Platform::package), Ok(package.to_owned()));
        }
        for target in ["x86_64-pc-windows-msvc", "x86_64-unknown-linux-gnux32"] {
            assert!(Platform::of(target).is_err(), "{target}");
        }
    }
}
