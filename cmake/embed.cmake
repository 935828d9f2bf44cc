# cmake -D FROM=page.md -D TO=page.c -D NAME=page -P embed.cmake: the bytes of a
# file as an array that ends in NUL.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${TO} "extern const unsigned char ${NAME}[];\n"
  "const unsigned char ${NAME}[] = {${bytes}0};\n")
