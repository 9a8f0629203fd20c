"""
The public images that the local cloud knows, by project and family.

Names end in a fixed date: every local machine boots from the computer's own files anyway.
"""

from orchestrator.emulator.state.errors import ApiError

_STAMP = "v20260101"
FAMILIES = {
    # Debian 12 and older are out of support: a family whose images are all deprecated is not found any more
    # (docs/facts.md 2.6).
    "debian-cloud": ("debian-13",),
    "ubuntu-os-cloud": ("ubuntu-2204-lts", "ubuntu-2404-lts-amd64", "ubuntu-2404-lts-arm64"),
    "ubuntu-os-accelerator-images": ("ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e",),
}


def families_of(project: str) -> tuple[str, ...]:
    """Return the families of a public project; errors: ApiError 404."""
    if project not in FAMILIES:
        raise ApiError(404, "notFound", f"The resource 'projects/{project}' was not found")
    return FAMILIES[project]


def image_of_family(project: str, family: str) -> str:
    """Return the newest image of *family*; errors: ApiError 404."""
    if family not in FAMILIES.get(project, ()):
        path = f"projects/{project}/global/images/family/{family}"
        raise ApiError(404, "notFound", f"The resource '{path}' was not found")
    return f"{family}-{_STAMP}"


def family_of_image(project: str, image: str) -> str:
    """Return the family of *image*; errors: ApiError 404."""
    family = image.removesuffix(f"-{_STAMP}")
    if family not in FAMILIES.get(project, ()) or family == image:
        path = f"projects/{project}/global/images/{image}"
        raise ApiError(404, "notFound", f"The resource '{path}' was not found")
    return family


def resolve_image(url: str) -> str:
    """
    Return `projects/P/global/images/NAME` for an image or family address; errors: ApiError.

    gcloud writes a family as `projects/P/zones/-/imageFamilyViews/FAMILY`.
    """
    parts = url[url.index("projects/") :].split("/") if "projects/" in url else []
    if len(parts) == 6 and parts[4] in ("family", "imageFamilyViews"):
        return f"projects/{parts[1]}/global/images/{image_of_family(parts[1], parts[5])}"
    if len(parts) == 5 and parts[2:4] == ["global", "images"]:
        family_of_image(parts[1], parts[4])
        return "/".join(parts)
    raise ApiError(400, "invalid", f"Invalid value for field 'sourceImage': '{url}'. The URL is malformed.")
