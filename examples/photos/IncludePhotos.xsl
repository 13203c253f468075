<?xml version="1.0" encoding="UTF-8"?>
<!-- Show the items that an item joined below its text: their linked titles, and pictures if there are any.
     Use it with any feed that has a join:  register feed MusePhotos apply 'IncludePhotos.xsl' as MuseWithPhotos; -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
    xmlns:content="http://purl.org/rss/1.0/modules/content/"
    xmlns:runnel="https://runnel.example/ns/feed/1" exclude-result-prefixes="runnel">

  <xsl:template match="@*|node()">
    <xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy>
  </xsl:template>

  <xsl:template match="runnel:*"/>

  <xsl:template match="item[not(description)]">
    <item>
      <xsl:apply-templates select="node()"/>
      <description><xsl:apply-templates select="runnel:annotations/runnel:item" mode="html"/></description>
    </item>
  </xsl:template>

  <!-- The longer text of the item: its content, or its description if it has no content. -->
  <xsl:template match="item/content:encoded | item/description[not(../content:encoded)]">
    <xsl:copy>
      <xsl:value-of select="."/>
      <xsl:apply-templates select="../runnel:annotations/runnel:item" mode="html"/>
    </xsl:copy>
  </xsl:template>

  <!-- HTML inside RSS is text, so tags are written as text and titles are escaped. -->
  <xsl:template match="runnel:item" mode="html">
    <xsl:variable name="title">
      <xsl:call-template name="escape"><xsl:with-param name="text" select="runnel:title"/></xsl:call-template>
    </xsl:variable>
    <xsl:text>&lt;p&gt;</xsl:text>
    <xsl:if test="runnel:link"><xsl:value-of select="concat('&lt;a href=&quot;', runnel:link, '&quot;&gt;')"/></xsl:if>
    <xsl:value-of select="$title"/>
    <xsl:if test="starts-with(runnel:enclosure/@type, 'image/')">
      <xsl:value-of select="concat('&lt;br&gt;&lt;img src=&quot;', runnel:enclosure/@url, '&quot;&gt;')"/>
    </xsl:if>
    <xsl:if test="runnel:link"><xsl:text>&lt;/a&gt;</xsl:text></xsl:if>
    <xsl:text>&lt;/p&gt;</xsl:text>
  </xsl:template>

  <xsl:template name="escape">
    <xsl:param name="text"/>
    <xsl:choose>
      <xsl:when test="string-length(translate($text, '&amp;&lt;&quot;', '')) = string-length($text)">
        <xsl:value-of select="$text"/>
      </xsl:when>
      <xsl:when test="string-length($text) = 1">
        <xsl:choose>
          <xsl:when test="$text = '&amp;'">&amp;amp;</xsl:when>
          <xsl:when test="$text = '&lt;'">&amp;lt;</xsl:when>
          <xsl:otherwise>&amp;quot;</xsl:otherwise>
        </xsl:choose>
      </xsl:when>
      <xsl:otherwise>
        <xsl:variable name="half" select="floor(string-length($text) div 2)"/>
        <xsl:call-template name="escape"><xsl:with-param name="text" select="substring($text, 1, $half)"/></xsl:call-template>
        <xsl:call-template name="escape"><xsl:with-param name="text" select="substring($text, $half + 1)"/></xsl:call-template>
      </xsl:otherwise>
    </xsl:choose>
  </xsl:template>
</xsl:stylesheet>
