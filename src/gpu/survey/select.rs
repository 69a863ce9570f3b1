//! Which of the visible cards is meant.

use miette::Diagnostic;
use thiserror::Error;

use super::{Device, Survey};

/// Why a name leads to no card.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum DeviceError {
    /// No visible card has this number or id.
    #[error("there is no device `{wanted}`")]
    #[diagnostic(code(gpu::unknown_device))]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The cards there are.
        #[help]
        there: String,
    },
    /// Several visible cards have ids that begin so.
    #[error("`{wanted}` is the beginning of more than one device's id")]
    #[diagnostic(code(gpu::ambiguous_device))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// The cards it could be.
        #[help]
        there: String,
    },
}

impl Survey {
    /// The card that is meant by a place in CUDA's order (`1`), or by an id or the beginning of one (`GPU-6f3a`); the first
    /// card where nothing is named.
    ///
    /// # Errors
    /// Where no card is meant, or several could be.
    pub fn device(&self, wanted: Option<&str>) -> Result<&Device, DeviceError> {
        let wanted = wanted.unwrap_or("0").trim();
        let unknown = || DeviceError::Unknown {
            wanted: wanted.to_owned(),
            there: listed(&self.devices.iter().collect::<Vec<_>>()),
        };
        if wanted.bytes().all(|byte| byte.is_ascii_digit()) {
            let ordinal = wanted.parse().ok();
            let found = self.devices.iter().find(|device| Some(device.ordinal) == ordinal);
            return found.ok_or_else(unknown);
        }
        let begins = |device: &&Device| {
            let start = device.uuid.get(..wanted.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(wanted))
        };
        let found: Vec<_> = self.devices.iter().filter(begins).collect();
        match found.as_slice() {
            [] => Err(unknown()),
            [one] => Ok(one),
            several => Err(DeviceError::Ambiguous {
                wanted: wanted.to_owned(),
                there: listed(several),
            }),
        }
    }
}

fn listed(devices: &[&Device]) -> String {
    let all: Vec<_> = devices
        .iter()
        .map(|device| format!("{} ({}, {})", device.ordinal, device.uuid, device.name))
        .collect();
    match all.as_slice() {
        [] => "no device is visible".to_owned(),
        all => format!("visible are {}", all.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::survey::tests::{device, survey};

    fn two() -> Survey {
        let mut second = device();
        second.ordinal = 1;
        second.uuid = "GPU-6f3b0000-0000-0000-0000-000000000002".to_owned();
        survey(vec![device(), second])
    }

    #[test]
    fn a_card_is_meant_by_its_number_or_its_id() {
        let survey = two();
        let ordinal = |wanted| survey.device(wanted).unwrap().ordinal;
        assert_eq!(ordinal(None), 0);
        assert_eq!(ordinal(Some("1")), 1);
        assert_eq!(ordinal(Some("GPU-6f3b")), 1);
        assert_eq!(ordinal(Some("gpu-6F3A")), 0);
        assert_eq!(ordinal(Some("GPU-6f3a0000-0000-0000-0000-000000000001")), 0);
    }

    #[test]
    fn a_card_that_is_not_there_is_answered_with_those_that_are() {
        let survey = two();
        for wanted in ["2", "GPU-7", "MIG-6f3a", "99999999999999999999", "-1", "l4"] {
            let error = survey.device(Some(wanted)).unwrap_err();
            let DeviceError::Unknown { there, .. } = &error else {
                panic!("{error}")
            };
            assert!(
                there.contains("1 (GPU-6f3b") && there.contains("NVIDIA H200"),
                "{there}"
            );
        }
        assert!(matches!(
            survey.device(Some("GPU-6f3")),
            Err(DeviceError::Ambiguous { .. })
        ));
    }
}
