// SPDX-License-Identifier: Apache-2.0
// {fmt}'s own code, compiled once for the whole tree. Header-only, every file that prints compiles
// it again, which is most of that file's time; and Debian has only the shared library, which a
// program that is copied to other machines cannot need.
#include <fmt/format-inl.h>

#if FMT_VERSION < 90000 || FMT_VERSION >= 100000
#error "cmake/fmt.cmake takes {fmt} header-only for this version"
#endif

FMT_BEGIN_NAMESPACE
namespace detail {

// What fmt/format.h declares and only format-inl.h defines.
template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<wchar_t>;
template auto decimal_point_impl(locale_ref) -> char;
template auto decimal_point_impl(locale_ref) -> wchar_t;

}  // namespace detail
FMT_END_NAMESPACE
