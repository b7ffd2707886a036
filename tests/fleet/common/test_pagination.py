import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from fleet.common.pagination import decode, encode, page, slice_page
from fleet.common.problems import ApiProblem


@pytest.mark.django_db
def test_pages_show_every_row_once_newest_first_whatever_is_added_meanwhile() -> None:
    for name in "abcde":
        User.objects.create_user(name)
    seen, cursor, added = [], "", 0
    while True:
        found = page(User.objects.all(), cursor=cursor, limit=2)
        seen += [user.username for user in found.items]
        if found.next is None:
            break
        cursor, added = found.next, added + 1
        User.objects.create_user(f"later{added}")
    assert seen == ["e", "d", "c", "b", "a"]


@pytest.mark.django_db
@pytest.mark.parametrize("cursor", ["!", "a", encode("x"), encode("9" * 70), encode("\x00"), "é", "x" * 5000])
def test_a_cursor_that_no_page_gave_is_refused(cursor: str) -> None:
    with pytest.raises(ApiProblem) as caught:
        page(User.objects.all(), cursor=cursor)
    assert caught.value.status == 422


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["9" * 60, "-5", str(2**63)])
def test_a_cursor_beyond_every_row_gives_a_page(key: str) -> None:
    User.objects.create_user("a")
    assert len(page(User.objects.all(), cursor=encode(key)).items) in (0, 1)


@given(st.integers(0, 2**70) | st.text("abcz019_", min_size=1, max_size=64))
def test_a_cursor_carries_its_key(key: int | str) -> None:
    assert decode(encode(key)) == str(key)


@given(st.integers(0, 30), st.integers(1, 10))
def test_slices_show_every_element_once_in_order(size: int, limit: int) -> None:
    elements, cursor = list(range(size)), ""
    seen: list[int] = []
    while True:
        part, following = slice_page(elements, cursor=cursor, limit=limit)
        seen += part
        if following is None:
            break
        cursor = following
    assert seen == elements


def test_a_slice_refuses_a_cursor_that_is_no_position() -> None:
    with pytest.raises(ApiProblem):
        slice_page([1, 2], cursor=encode("x"))
