//! Where a provider's answers become DAT's: one table each way they come.

use dat_plugin::{Access, CompletionStatus, Status};
use dat_types::{DtoStatus, Privileges, ReturnType, Subtype};

/// Status of a call → return type and subtype.
pub(crate) const RETURNED: &[(Status, ReturnType, Subtype)] = &[
    (Status::NO_RESOURCE, ReturnType::InsufficientResources, Subtype::ResourceDevice),
    (Status::INVALID, ReturnType::InvalidParameter, Subtype::None),
    (Status::NOT_SUPPORTED, ReturnType::ModelNotSupported, Subtype::None),
    (Status::NOT_CONNECTED, ReturnType::InvalidState, Subtype::EpNotReady),
    (Status::IN_USE, ReturnType::ConnQualInUse, Subtype::None),
    (Status::UNREACHABLE, ReturnType::InvalidAddress, Subtype::AddressUnreachable),
    (Status::BAD_ADDRESS, ReturnType::InvalidAddress, Subtype::AddressUnsupported),
    (Status::PERMISSION, ReturnType::InsufficientResources, Subtype::ResourceDevice),
    (Status::NO_DEVICE, ReturnType::InsufficientResources, Subtype::ResourceDevice),
    (Status::PANICKED, ReturnType::InternalError, Subtype::None),
    (Status::FAULTY, ReturnType::InternalError, Subtype::None),
    (Status::IO, ReturnType::InternalError, Subtype::None),
    (Status::BAD_CONFIG, ReturnType::InvalidParameter, Subtype::Arg1),
    (Status::GONE, ReturnType::InvalidState, Subtype::None),
    (Status::FORKED, ReturnType::InvalidState, Subtype::None),
];

/// Status of a completion → DAT's.
pub(crate) const COMPLETED: &[(CompletionStatus, DtoStatus)] = &[
    (CompletionStatus::SUCCESS, DtoStatus::Success),
    (CompletionStatus::LOCAL_LENGTH, DtoStatus::LocalLength),
    (CompletionStatus::LOCAL_ACCESS, DtoStatus::LocalProtection),
    (CompletionStatus::REMOTE_ACCESS, DtoStatus::RemoteAccess),
    (CompletionStatus::REMOTE_ERROR, DtoStatus::RemoteResponder),
    (CompletionStatus::TRANSPORT, DtoStatus::Transport),
    (CompletionStatus::NOT_READY, DtoStatus::ReceiverNotReady),
    (CompletionStatus::BAD_RESPONSE, DtoStatus::BadResponse),
    (CompletionStatus::PARTIAL, DtoStatus::PartialPacket),
    (CompletionStatus::WINDOW, DtoStatus::RmrOperationFailed),
    (CompletionStatus::LOCAL_CHANNEL, DtoStatus::LocalEp),
];

/// Rights of a registration → the provider's.
pub(crate) const RIGHTS: &[(Privileges, Access)] = &[
    (Privileges::LOCAL_READ, Access::LOCAL_READ),
    (Privileges::REMOTE_READ, Access::REMOTE_READ),
    (Privileges::LOCAL_WRITE, Access::LOCAL_WRITE),
    (Privileges::REMOTE_WRITE, Access::REMOTE_WRITE),
    (Privileges::REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
];

pub(crate) fn returned(status: Status) -> (ReturnType, Subtype) {
    RETURNED
        .iter()
        .find(|(known, ..)| *known == status)
        .map_or((ReturnType::InternalError, Subtype::None), |(_, kind, subtype)| (*kind, *subtype))
}

/// The failure of this number.
pub(crate) fn failure(number: u8) -> Option<DtoStatus> {
    COMPLETED.iter().map(|(_, dat)| *dat).find(|dat| !dat.is_success() && *dat as u8 == number)
}

/// An unknown status is a failure of the transport, never a success.
pub(crate) fn completed(status: CompletionStatus) -> DtoStatus {
    COMPLETED.iter().find(|(known, _)| *known == status).map_or(DtoStatus::Transport, |(_, dat)| *dat)
}

pub(crate) fn access(privileges: Privileges) -> Access {
    RIGHTS.iter().filter(|(dat, _)| privileges.contains(*dat)).fold(Access::NONE, |sum, (_, bit)| sum | *bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_a_provider_can_name_has_a_row() {
        for value in -64..0 {
            let status = Status(value);
            let listed = RETURNED.iter().any(|(known, ..)| *known == status);
            assert_eq!(listed, status.name().is_some(), "{status:?}");
        }
        for value in 0..64 {
            let status = CompletionStatus(value);
            let listed = COMPLETED.iter().any(|(known, _)| *known == status);
            assert_eq!(listed, status.name().is_some(), "{status:?}");
        }
    }

    #[test]
    fn unknown_answers_are_failures() {
        assert_eq!(returned(Status(-9999)).0, ReturnType::InternalError);
        assert_eq!(completed(CompletionStatus(0x9c)), DtoStatus::Transport);
    }
}
